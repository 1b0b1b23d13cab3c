// FakeData: images of random bytes with random labels, as torchvision's, for tests and benchmarks without files.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/data/sets/image_dataset.h"
#include "gradus/data/transforms/tensor.h"

namespace gradus::data {

struct FakeDataOptions {
  int64_t size = 1000;  // number of images
  Size2 image_size = 224;
  int64_t channels = 3;
  int64_t classes = 10;  // at most 2^32
  uint64_t seed = 0;
  Transform transform = ToTensor();
};

// An image and its label depend only on (seed, index).
class FakeData : public ImageDataset {
 public:
  // Errors: ValueError for a size, image size or number of classes below 1, or channels other than 1 or 3.
  explicit FakeData(FakeDataOptions options = {});

  std::string name() const override { return "FakeData"; }
  int64_t size() const override { return options_.size; }
  Image image(int64_t index) const override;
  int64_t label(int64_t index) const override;

 private:
  FakeDataOptions options_;
};

}  // namespace gradus::data
