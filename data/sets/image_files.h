// ImageFiles: labeled image files, each read, decoded and transformed when its sample is asked for.
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

// What to do about a file that is missing, damaged or no image.
enum class OnError {
  kThrow,  // throw a SampleError naming the sample and the file, in place of its batch
  // Let another sample stand in: the next readable one, in the order of the set. Batches keep their sizes, on
  // all ranks, and epochs keep their length. Samples that stand in come last in their batch and count as its
  // padding, so an evaluation counts each readable sample once. Batch::skipped and DataLoader::skipped say
  // how many there were.
  kSkip,
};

// What to read of every file when the set is made.
enum class Check {
  kNothing,
  kHeaders,  // format and size
  kPixels,   // everything
};

struct ImageFilesOptions {
  Transform transform = ToTensor();  // what becomes of each image when it is read
  DecodeOptions decode = {};
  OnError on_error = OnError::kThrow;
  // With OnError::kThrow, a FileError names the files that fail; with kSkip the set is made without them.
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
  // Errors: FileError, with Check; ValueError for no files, or none that can be read.
  explicit ImageFiles(const std::vector<ImageFile>& files, const ImageFilesOptions& options = {});

  std::string name() const override { return name_; }
  int64_t size() const override { return files_.size(); }
  // Errors: IndexError; image() also FileError.
  Image image(int64_t index) const override;
  int64_t label(int64_t index) const override;
  std::filesystem::path path(int64_t index) const;

  // The number of files found unreadable so far (OnError::kSkip), each counted once, and the
  // first 1000 of them.
  int64_t unreadable() const;
  std::vector<UnreadableFile> unreadable_files() const;

 protected:
  ImageFiles(std::string name, internal::FileList files, const ImageFilesOptions& options);
  bool skips(int64_t index, const FileError& error) const override;

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
