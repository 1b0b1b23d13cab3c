// SegmentationFiles: a data set of image files with mask files, which have a class per pixel.
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
  // Applied to each image and its mask: crops, resizes, padding and flips change both, with the same random
  // numbers; other transforms change the image only.
  Transform transform = ToTensor();
  DecodeOptions decode = {.exif_orientation = false};  // of images, and of masks except the mode
  MaskOptions mask = {};                               // class of padding pixels
};

class SegmentationFiles : public Dataset {
 public:
  // Masks are PNG files, gray or with a palette; the stored values are the classes.
  // Errors: ValueError for no files.
  explicit SegmentationFiles(std::vector<SegmentationFile> files, SegmentationFilesOptions options = {});

  std::string name() const override { return "SegmentationFiles"; }
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  const SegmentationFile& file(int64_t index) const;  // Errors: IndexError
  // Returns the transformed image, and the mask i64[H,W].
  // Errors: IndexError; FileError, also for a mask whose size differs from its image's; StateError if the
  // transform does not produce a tensor.
  Sample get(int64_t index) const override;

 private:
  std::vector<SegmentationFile> files_;
  SegmentationFilesOptions options_;
};

}  // namespace gradus::data
