// Implementation of ImageFiles. The constructor optionally opens every file in parallel
// (ImageFilesOptions::check), and throws or leaves out unreadable ones. Access by index reads the file each
// time, without a cache; Image decodes the pixels on demand. Const functions may run on several threads
// (workers of a DataLoader): the list of unreadable files has a mutex.
#include "gradus/data/sets/image_files.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus::data {
namespace {

internal::FileList list_of(const std::vector<ImageFile>& files) {
  internal::FileList list;
  const int32_t here = list.add_folder({});
  for (const ImageFile& f : files) list.add(here, f.path.native(), f.label);
  return list;
}

}  // namespace

struct ImageFiles::Unreadable {
  static constexpr size_t kListed = 1000;

  std::mutex mutex;
  std::unordered_set<std::string> paths;
  std::vector<UnreadableFile> first;

  void add(const std::filesystem::path& path, const std::string& reason) {
    std::lock_guard lock(mutex);
    if (paths.insert(path.native()).second && first.size() < kListed) first.push_back({path, reason});
  }
};

ImageFiles::ImageFiles(const std::vector<ImageFile>& files, const ImageFilesOptions& options)
    : ImageFiles("ImageFiles", list_of(files), options) {}

ImageFiles::ImageFiles(std::string name, internal::FileList files, const ImageFilesOptions& options)
    : ImageDataset(options.transform),
      name_(std::move(name)),
      files_(std::move(files)),
      decode_(options.decode),
      on_error_(options.on_error),
      unreadable_(std::make_shared<Unreadable>()) {
  if (files_.size() == 0) throw ValueError(name_, "needs at least one file");
  if (options.check != Check::kNothing) check_files(options.check);
}

void ImageFiles::check_files(Check check) {
  std::vector<char> keep(static_cast<size_t>(size()), 1);
  parallel_for(0, size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      try {
        const Image opened = image(i);
        if (check == Check::kPixels) opened.data();
      } catch (const FileError& e) {
        keep[static_cast<size_t>(i)] = 0;
        unreadable_->add(path(i), e.what());
      }
    }
  });
  if (unreadable_->paths.empty()) return;
  if (on_error_ == OnError::kThrow) {
    constexpr size_t kShown = 5;
    std::string text;
    for (size_t i = 0; i < std::min(kShown, unreadable_->first.size()); ++i)
      text += "\n  " + unreadable_->first[i].reason;
    throw FileError(name_, unreadable_->paths.size(), " of ", size(), " files cannot be read:", text,
                    unreadable_->paths.size() > kShown ? "\n  ..." : "");
  }
  files_ = files_.filter(keep);
  if (files_.size() == 0) throw ValueError(name_, "no file can be read: ", unreadable_->first[0].reason);
}

std::filesystem::path ImageFiles::path(int64_t index) const {
  check_index(index);
  return files_.path(index);
}

int64_t ImageFiles::label(int64_t index) const {
  check_index(index);
  return files_.label(index);
}

Image ImageFiles::image(int64_t index) const { return decode_image(path(index), decode_); }

bool ImageFiles::may_replace(int64_t index, const FileError& error) const {
  if (on_error_ == OnError::kThrow) return false;
  unreadable_->add(path(index), error.what());
  return true;
}

int64_t ImageFiles::unreadable() const {
  std::lock_guard lock(unreadable_->mutex);
  return static_cast<int64_t>(unreadable_->paths.size());
}

std::vector<UnreadableFile> ImageFiles::unreadable_files() const {
  std::lock_guard lock(unreadable_->mutex);
  return unreadable_->first;
}

}  // namespace gradus::data
