// What the calls of style-based generators, StyleGAN and StyleGAN2, share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gradus/nn/layers/gan/noise.h"

namespace gradus::models {

// Moves style vectors towards their average, to more typical images of less variety:
//   w' = w_avg + truncation (w - w_avg).
struct Truncation {
  double truncation = 1;
  std::optional<int64_t> cutoff =
      {};  // number of the first style vectors that are moved; nullopt: the network's
};

// The noise that a synthesis adds to its features.
struct SynthesisNoise {
  nn::NoiseMode mode = nn::NoiseMode::kRandom;  // kFixed: the network's buffers
  // The noise itself, instead of `mode`: tensors [N,1,S,S] or [1,1,S,S] for the S of the network's noise_sizes.
  std::vector<Tensor> planes = {};
};

}  // namespace gradus::models
