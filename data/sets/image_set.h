// ImageSet: labeled 8-bit images in memory, one byte per value, normalized while a batch is filled.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "gradus/data/dataset.h"
#include "gradus/data/sets/host_tensor.h"

namespace gradus::data {

// Turns a byte into a float, per channel: (byte / 255 - mean) / std.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> std;
};

class ImageSet : public Dataset {
 public:
  // Normalizes each of the C channels. An empty Normalization only divides by 255. `memory` says how many of
  // the bytes are this process's own and how many are shared; by default all are its own.
  // Shapes: images u8[N,C,H,W], row-major; labels u8[N].
  // Errors: ShapeError, DTypeError, ValueError for a label of `classes` or more.
  ImageSet(std::string name, Tensor images, Tensor labels, int64_t classes,
           const Normalization& normalization, std::optional<MemoryUse> memory = {});

  std::string name() const override { return name_; }
  int64_t size() const override { return images_.size(0); }
  // Returns input f32[C,H,W], target i64[].
  Sample get(int64_t index) const override;
  // Returns input f32[N,C,H,W], target i64[N].
  Batch get_batch(std::span<const int64_t> indices) const override;

  int64_t classes() const { return classes_; }
  const Tensor& images() const { return images_; }  // u8[N,C,H,W]; not to be written to
  const Tensor& labels() const { return labels_; }  // u8[N]; not to be written to
  // Memory of images and labels.
  const MemoryUse& memory() const { return memory_; }

 private:
  void fill(int64_t index, float* out) const;

  std::string name_;
  Tensor images_, labels_;
  int64_t classes_;
  MemoryUse memory_;
  std::vector<std::array<float, 256>> value_of_;  // per channel: the float for each byte
};

}  // namespace gradus::data
