// SegmentationFiles: reads, decodes and transforms an image and its mask at each access, without a cache.
// Const functions may run on several threads.
#include "gradus/data/sets/segmentation_files.h"

#include <utility>

#include "gradus/tensor/base/error.h"

namespace gradus::data {

SegmentationFiles::SegmentationFiles(std::vector<SegmentationFile> files, SegmentationFilesOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
  if (files_.empty()) throw ValueError(name(), "needs at least one file");
}

const SegmentationFile& SegmentationFiles::file(int64_t index) const {
  check_index(index);
  return files_[static_cast<size_t>(index)];
}

Sample SegmentationFiles::get(int64_t index) const {
  const SegmentationFile& f = file(index);
  DecodeOptions of_mask = options_.decode;
  of_mask.mode = ColorMode::kIndices;
  const Image image = decode_image(f.image, options_.decode), mask = decode_image(f.mask, of_mask);
  const Size2 size(image.height(), image.width()), given(mask.height(), mask.width());
  if (given != size)
    throw FileError(name(), f.mask.string(), ": is ", given, ", but ", f.image.string(), " is ", size);
  Picture picture(image, mask, options_.mask);
  options_.transform.apply(picture);
  if (picture.is_image())
    throw StateError(name(), "the transform leaves an image, expected a tensor: ToTensor is missing");
  Sample sample;
  sample.input = picture.tensor();
  sample.target = picture.mask();
  return sample;
}

}  // namespace gradus::data
