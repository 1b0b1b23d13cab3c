// The Frechet distance between two sets of features; FID for features of an Inception network.
//
//   metrics::FeatureStatistics real, generated;
//   for (const data::Batch& b : loader) real.update(features(b.input), b);
//   for (int64_t i = 0; i < batches; ++i) generated.update(features(gen(latents(i))));
//   std::cout << metrics::frechet_distance(real, generated);
//
// The distance is biased for few samples: compare values for equal numbers of samples only.
#pragma once

#include <cstdint>

#include "gradus/data/dataset.h"
#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct FeatureMoments {
  Tensor mean;        // f64[D]
  Tensor covariance;  // f64[D,D], normalized by n - 1
  int64_t count = 0;  // samples; 0: unknown
};

struct FeatureStatisticsOptions {
  dist::Group group = {};
};

// Moments of features, accumulated over batches in f64 by a stable update.
// Source: Chan et al., "Algorithms for computing the sample variance", The American Statistician 1983.
class FeatureStatistics {
 public:
  explicit FeatureStatistics(FeatureStatisticsOptions options = {}) : group_(options.group) {}

  // Adds a batch, from any device, which the host waits for, without recording.
  // Shapes: features [N,D], the same D <= 16384 in all batches.
  // Errors: DTypeError unless floating point; ShapeError; ValueError for NaN and magnitudes above 1e40.
  void update(const Tensor& features);
  // The same for the features of batch.input, without the batch's padding.
  void update(const Tensor& features, const data::Batch& batch);
  // Removes all batches of this rank.
  void reset() { *this = FeatureStatistics({.group = group_}); }

  // Return the moments of the batches of all ranks, for any number of ranks equal up to rounding. Collective.
  // Errors: ShapeError if ranks have different D; ValueError for fewer than 2 samples (not count()).
  int64_t count() const;
  Tensor mean() const { return compute().mean; }
  Tensor covariance() const { return compute().covariance; }
  FeatureMoments compute() const;

 private:
  dist::Group group_;
  int64_t count_ = 0;
  Tensor mean_;     // f64[D]; undefined before the first batch
  Tensor scatter_;  // f64[D,D]: sums of products of differences from the mean
};

// Returns max(0, |mean a - mean b|^2 + tr Ca + tr Cb - 2 tr (Ca Cb)^(1/2)) with covariances C: the squared
// Wasserstein-2 distance between normal distributions with these moments. The trace of the root is computed
// from the eigenvalues of Ca^(1/2) Cb Ca^(1/2), clamped at 0. Warns of singular covariances from fewer
// samples than features.
// Errors: ShapeError, DTypeError unless f64, ValueError unless finite (means within 1e40, covariances within
// 1e100) and symmetric.
// Source: Heusel et al., "GANs trained by a two time-scale update rule converge to a local Nash equilibrium",
// NeurIPS 2017.
double frechet_distance(const FeatureMoments& a, const FeatureMoments& b);
// The same of statistics. Collective.
// Errors: also those of compute().
double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b);

}  // namespace gradus::metrics
