// FileList: a compact list of file paths and class labels. Folders are stored once, and all file names are
// one string. Callers pass valid indices: none is checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::data::internal {

class FileList {
 public:
  // Returns the folder's index, for add().
  int32_t add_folder(const std::filesystem::path& folder);
  void add(int32_t folder, std::string_view name, int64_t label);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  std::filesystem::path path(int64_t i) const;
  int64_t label(int64_t i) const { return entries_[static_cast<size_t>(i)].label; }
  // Returns the files i with is_kept[i] != 0, in the same order. `is_kept` has size() elements.
  FileList filter(const std::vector<char>& is_kept) const;

 private:
  struct Entry {
    int64_t label;
    int64_t name_end;  // end of the name in names_
    int32_t folder;
  };
  std::string_view name(size_t i) const;

  std::vector<std::filesystem::path> folders_;
  std::vector<Entry> entries_;
  std::string names_;  // all names, concatenated
};

}  // namespace gradus::data::internal
