// The kernel distance between two sets of features: KID where they are those of an Inception network. Unlike
// the Frechet distance it has no bias from few samples.
//
// The results are those of the features given, on whichever rank: nothing is collective.
#pragma once

#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

// Returns the unbiased estimate of the squared maximum mean discrepancy with the kernel (x y / D + 1)^3. It
// may be below 0 when the sets are alike.
// Shapes: a [N,D], b [M,D].
// Errors: DTypeError unless floating point; ShapeError; ValueError for NaN, infinities, numbers beyond 1e40,
// fewer than 2 samples.
// Source: Binkowski et al., "Demystifying MMD GANs", ICLR 2018.
double kernel_distance(const Tensor& a, const Tensor& b);

struct KernelDistanceOptions {
  int64_t subsets = 100;
  int64_t subset_size = 1000;  // at most all samples of the smaller set
  uint64_t seed = 0;           // of the subsets
};

struct KernelDistance {
  double mean, std;  // over the subsets, std with n
};

// The same over random subsets, without repetition inside of a subset: for sets that are too large for a
// matrix of all pairs.
// Errors: also ValueError for fewer than 1 or more than 2^20 subsets, or a size below 2.
KernelDistance kernel_distance_of_subsets(const Tensor& a, const Tensor& b,
                                          const KernelDistanceOptions& options = {});

}  // namespace gradus::metrics
