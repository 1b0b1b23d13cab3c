// GeneratedDigits: 28x28 images of the digits 0-9 that the program itself draws, for machines without
// files and network.
//
// Every image is drawn from strokes. There are several ways of writing each digit. The points of the strokes
// are shaken, slanted, turned, scaled and moved by an elastic field. Pens have different widths. Images have
// some noise and sometimes a stray mark.
#pragma once

#include <cstdint>
#include <optional>

#include "gradus/data/sets/images_in_memory.h"
#include "gradus/data/transforms/transforms.h"

namespace gradus::data {

struct GeneratedDigitsOptions {
  bool train = true;                 // train and test images are different draws
  std::optional<int64_t> size = {};  // by default 60,000 training and 10,000 test images, as MNIST has
  uint64_t seed = 0;
  // What becomes of each image when it is read. By default normalizes with MNIST's mean and std.
  Transform transform = Compose({ToTensor(), Normalize({.mean = {0.1307}, .std = {0.3081}})});
};

// An image depends on (seed, train, index) alone. Drawn at construction, in parallel, one byte per pixel.
class GeneratedDigits : public ImagesInMemory {
 public:
  // Errors: ValueError for a size below 1.
  explicit GeneratedDigits(GeneratedDigitsOptions options = {});
};

}  // namespace gradus::data
