// The kernel distance between two sets of features; KID for features of an Inception network. Unlike the
// Frechet distance it is unbiased for few samples.
//
// Not collective: each rank compares its own features, from any device; the work is done on the host.
#pragma once

#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

// Returns the unbiased estimate of the squared maximum mean discrepancy with the kernel (x y / D + 1)^3,
// which may be negative.
// Shapes: a [N,D], b [M,D].
// Errors: DTypeError unless floating point; ShapeError; ValueError for NaN, magnitudes above 1e40, and
// fewer than 2 samples.
// Source: Binkowski et al., "Demystifying MMD GANs", ICLR 2018.
double kernel_distance(const Tensor& a, const Tensor& b);

struct KernelDistanceOptions {
  int64_t subsets = 100;
  int64_t subset_size = 1000;  // samples of each set; limited to the size of the smaller set
  uint64_t seed = 0;           // of the subsets
};

struct KernelDistance {
  double mean, std;  // over the subsets; std divides by their number
};

// The same over random subsets, each without repetition: for sets that are too large for a matrix of all
// pairs.
// Errors: also ValueError for fewer than 1 or more than 2^20 subsets, or a size below 2.
KernelDistance kernel_distance_of_subsets(const Tensor& a, const Tensor& b,
                                          const KernelDistanceOptions& options = {});

}  // namespace gradus::metrics
