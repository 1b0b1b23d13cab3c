// SegmentationFiles: image files, each with the file of its mask: a class for each pixel.
//
//   data::SegmentationFiles train({{"a.jpg", "a.png"}, {"b.jpg", "b.png"}}, {.transform = augment});
//   for (const data::Batch& b : data::DataLoader(train, {.batch_size = 8, .shuffle = true}))
//     loss = nn::cross_entropy(net(b.input), b.target, {.ignore_index = 255});  // f32[N,3,H,W], i64[N,H,W]
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gradus/data/dataset.h"
#include "gradus/data/images/image_decoder.h"
#include "gradus/data/transforms/tensor.h"

namespace gradus::data {

struct SegmentationFile {
  std::filesystem::path image, mask;
};

struct SegmentationFilesOptions {
  // What becomes of each image and, by the same random numbers, of its mask: crops, sizes, padding and flips
  // reach both, colors the image alone.
  Transform transform = ToTensor();
  DecodeOptions decode = {.exif_orientation = false};  // of images, which lie as their masks do
  MaskOptions mask = {};                               // what the mask has where a transform pads
};

class SegmentationFiles : public Dataset {
 public:
  // Masks are PNG files, gray or with a palette, whose numbers are the classes.
  // Errors: ValueError for no files.
  explicit SegmentationFiles(std::vector<SegmentationFile> files, SegmentationFilesOptions options = {});

  std::string name() const override { return "SegmentationFiles"; }
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  const SegmentationFile& file(int64_t index) const;  // Errors: IndexError
  // Returns what the transform makes of the image, and the mask i64[H,W].
  // Errors: IndexError; FileError, also for a mask of another size than its image; StateError when the
  // transform leaves an image.
  Sample get(int64_t index) const override;

 private:
  std::vector<SegmentationFile> files_;
  SegmentationFilesOptions options_;
};

}  // namespace gradus::data
