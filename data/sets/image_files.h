// ImageFiles: a data set of labeled image files, which are read, decoded and transformed on access.
//
//   data::ImageFiles pets({{"a/cat.jpg", 0}, {"b/dog.png", 1}}, {.transform = resize_and_crop});
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gradus/data/images/image_decoder.h"
#include "gradus/data/sets/file_list.h"
#include "gradus/data/sets/image_dataset.h"
#include "gradus/data/transforms/tensor.h"

namespace gradus::data {

// What to do about a file that is missing, damaged or not an image.
enum class OnError {
  kThrow,  // throw a SampleError naming the sample and the file, in place of its batch
  // Replace the sample by the next readable one, in the order of the set. Sizes of batches and epochs do not
  // change on any rank. Replacements come last in their batch and count as padding, so an evaluation counts each
  // readable sample once. Batch::skipped and DataLoader::skipped return their number.
  kSkip,
};

// What the constructor reads of every file.
enum class Check {
  kNothing,
  kHeaders,  // format and size
  kPixels,   // everything
};

struct ImageFilesOptions {
  Transform transform = ToTensor();  // applied to each image when it is read
  DecodeOptions decode = {};
  OnError on_error = OnError::kThrow;
  // Files that fail the check: FileError naming them with OnError::kThrow; left out with kSkip.
  Check check = Check::kNothing;
};

struct ImageFile {
  std::filesystem::path path;
  int64_t label = 0;
};

struct UnreadableFile {
  std::filesystem::path path;
  std::string reason;
};

class ImageFiles : public ImageDataset {
 public:
  // Errors: FileError if a file fails the check; ValueError if `files` is empty or all files are left out.
  explicit ImageFiles(const std::vector<ImageFile>& files, const ImageFilesOptions& options = {});

  std::string name() const override { return name_; }
  int64_t size() const override { return files_.size(); }
  // Errors: IndexError; image() also FileError.
  Image image(int64_t index) const override;
  int64_t label(int64_t index) const override;
  std::filesystem::path path(int64_t index) const;

  // Return the number of distinct files found unreadable so far (OnError::kSkip), by this set and its copies,
  // and the first 1000 of them.
  int64_t unreadable() const;
  std::vector<UnreadableFile> unreadable_files() const;

 protected:
  ImageFiles(std::string name, internal::FileList files, const ImageFilesOptions& options);
  bool may_replace(int64_t index, const FileError& error) const override;

 private:
  struct Unreadable;

  void check_files(Check check);

  std::string name_;
  internal::FileList files_;
  DecodeOptions decode_;
  OnError on_error_;
  std::shared_ptr<Unreadable> unreadable_;
};

}  // namespace gradus::data
