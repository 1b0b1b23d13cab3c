// FileList: the names of all files are one string, in which an entry has the end of its name; the name begins
// at the end of the previous entry's name. Indices are not checked.
#include "gradus/data/sets/file_list.h"

namespace gradus::data::internal {

int32_t FileList::add_folder(const std::filesystem::path& folder) {
  folders_.push_back(folder);
  return static_cast<int32_t>(folders_.size()) - 1;
}

void FileList::add(int32_t folder, std::string_view name, int64_t label) {
  names_ += name;
  entries_.push_back({label, static_cast<int64_t>(names_.size()), folder});
}

std::string_view FileList::name(size_t i) const {
  const size_t begin = i == 0 ? 0 : static_cast<size_t>(entries_[i - 1].name_end);
  return std::string_view(names_).substr(begin, static_cast<size_t>(entries_[i].name_end) - begin);
}

std::filesystem::path FileList::path(int64_t i) const {
  const auto at = static_cast<size_t>(i);
  return folders_[static_cast<size_t>(entries_[at].folder)] / name(at);
}

FileList FileList::filter(const std::vector<char>& is_kept) const {
  FileList list;
  list.folders_ = folders_;
  for (size_t i = 0; i < entries_.size(); ++i)
    if (is_kept[i]) list.add(entries_[i].folder, name(i), entries_[i].label);
  return list;
}

}  // namespace gradus::data::internal
