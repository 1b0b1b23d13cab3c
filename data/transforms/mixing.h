// Batch transforms that mix samples: MixUp and CutMix, with soft targets.
//
//   data::DataLoader loader(train, {.batch_size = 128, .shuffle = true,
//                                   .batch_transform = data::MixUp({.num_classes = 10, .alpha = 0.2})});
//   for (const data::Batch& b : loader) loss = nn::cross_entropy(net(b.input), b.target);
//
// Sample i is mixed with sample i - 1 of the batch, sample 0 with the last, in place if the batch is the
// input's only owner. Random numbers come from the Context's generator; a loader installs a separate
// generator per batch.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gradus/data/dataset.h"
#include "gradus/tensor/base/required.h"

namespace gradus::data {

// Returns the one-hot encoding of class numbers.
// Shapes: labels i64[N] -> f32[N,classes].
// Errors: ValueError naming a number outside [0, classes); DTypeError, ShapeError for other tensors.
Tensor soft_targets(const Tensor& labels, int64_t classes);

struct MixUpOptions {
  Required<int64_t, "num_classes"> num_classes;
  double alpha = 1;  // of the beta distribution
};

// MixUp (Zhang et al. 2018), with one r ~ Beta(alpha, alpha) per batch. One-hot targets are mixed in the same way.
//   input[i] = r input[i] + (1 - r) input[i - 1]
// Shapes: input f32[N,...], target i64[N] -> input, target f32[N,num_classes].
class MixUp {
 public:
  explicit MixUp(MixUpOptions options);  // Errors: ValueError unless alpha > 0 and there is a class
  // Errors: ShapeError, DTypeError, DeviceError unless of these shapes and dtypes, dense and on the CPU;
  // ValueError for a missing target or one outside [0, num_classes).
  Batch operator()(Batch batch) const;

 private:
  MixUpOptions options_;
};

using CutMixOptions = MixUpOptions;

// CutMix (Yun et al. 2019): replaces a box of each image by the same box of the previous sample. The batch has one
// r ~ Beta(alpha, alpha), and one box, whose center is uniform over the image:
//   s = sqrt(1 - r) / 2
//   height = 2 int(H s), width = 2 int(W s), clipped to the image
// Targets are mixed in proportion to the areas.
// Shapes: input f32[N,C,H,W], target i64[N] -> input, target f32[N,num_classes].
class CutMix {
 public:
  explicit CutMix(CutMixOptions options);  // Errors: as MixUp
  Batch operator()(Batch batch) const;     // Errors: as MixUp

 private:
  CutMixOptions options_;
};

// Applies one of several batch transforms, chosen with equal probabilities.
class RandomChoice {
 public:
  explicit RandomChoice(std::vector<std::function<Batch(Batch)>> choices);  // Errors: ValueError for none
  Batch operator()(Batch batch) const;

 private:
  std::vector<std::function<Batch(Batch)>> choices_;
};

}  // namespace gradus::data
