// SegmentationFiles: image files, each with a mask file that has a class for each pixel.
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
  // Changes each image and, with the same random numbers, its mask. Crops, resizes, padding and flips change
  // both. Colors change the image alone.
  Transform transform = ToTensor();
  DecodeOptions decode = {.exif_orientation = false};  // of images and masks; neither is turned
  MaskOptions mask = {};                               // the mask's class where a transform pads
};

class SegmentationFiles : public Dataset {
 public:
  // Takes PNG files as masks, gray or with a palette. The stored numbers are the classes.
  // Errors: ValueError for no files.
  explicit SegmentationFiles(std::vector<SegmentationFile> files, SegmentationFilesOptions options = {});

  std::string name() const override { return "SegmentationFiles"; }
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  const SegmentationFile& file(int64_t index) const;  // Errors: IndexError
  // Returns the transformed image, and the mask i64[H,W].
  // Errors: IndexError; FileError, also for a mask of another size than its image; StateError when the
  // transform leaves an image.
  Sample get(int64_t index) const override;

 private:
  std::vector<SegmentationFile> files_;
  SegmentationFilesOptions options_;
};

}  // namespace gradus::data
