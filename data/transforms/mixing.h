// Mixing the samples of a batch: MixUp and CutMix, with soft targets.
//
//   data::DataLoader loader(train, {.batch_size = 128, .shuffle = true,
//                                   .batch_transform = data::MixUp({.num_classes = 10, .alpha = 0.2})});
//   for (const data::Batch& b : loader) loss = nn::cross_entropy(net(b.input), b.target);
//
// Each sample is mixed with the one before it in the batch, the first with the last. Random numbers come from
// the Context's generator; a loader gives each batch its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gradus/data/dataset.h"
#include "gradus/tensor/base/required.h"

namespace gradus::data {

// Returns class numbers as probabilities: 1 for the class, 0 for the others.
// Shapes: labels i64[N] -> f32[N,classes].
// Errors: ValueError naming a number that is no class; DTypeError, ShapeError for other tensors.
Tensor soft_targets(const Tensor& labels, int64_t classes);

struct MixUpOptions {
  Required<int64_t, "num_classes"> num_classes;
  double alpha = 1;  // of the beta distribution
};

// Mixes whole samples (Zhang et al. 2018) with one r ~ Beta(alpha, alpha) for the batch. Targets are mixed
// alike, as probabilities.
//   input[i] = r input[i] + (1 - r) input[i - 1]
// Shapes: input f32[N,...], target i64[N] -> input, target f32[N,num_classes].
class MixUp {
 public:
  explicit MixUp(MixUpOptions options);  // Errors: ValueError unless alpha > 0 and there is a class
  // Errors: ValueError, ShapeError, DTypeError for a batch that is not of these shapes.
  Batch operator()(Batch batch) const;

 private:
  MixUpOptions options_;
};

struct CutMixOptions {
  Required<int64_t, "num_classes"> num_classes;
  double alpha = 1;  // of the beta distribution
};

// Replaces a box of each image by that box of the sample before it (Yun et al. 2019). The whole batch has one
// r ~ Beta(alpha, alpha), and one center of the box, uniform over the image. The box is cut off at the
// image's edges. Targets are weighed by the two areas that result.
//   s = sqrt(1 - r) / 2
//   height = 2 int(H s), width = 2 int(W s)
// Shapes: input f32[N,C,H,W], target i64[N] -> input, target f32[N,num_classes].
class CutMix {
 public:
  explicit CutMix(CutMixOptions options);  // Errors: as MixUp
  Batch operator()(Batch batch) const;

 private:
  CutMixOptions options_;
};

// Applies one of several batch transforms, each with the same probability.
class RandomChoice {
 public:
  explicit RandomChoice(std::vector<std::function<Batch(Batch)>> choices);  // Errors: ValueError for none
  Batch operator()(Batch batch) const;

 private:
  std::vector<std::function<Batch(Batch)>> choices_;
};

}  // namespace gradus::data
