// The Frechet distance between two sets of features: FID where they are those of an Inception network.
//
//   metrics::FeatureStatistics real, generated;
//   for (const data::Batch& b : loader) real.update(features(b.input), b);
//   for (int64_t i = 0; i < batches; ++i) generated.update(features(gen(latents(i))));
//   std::cout << metrics::frechet_distance(real, generated);
//
// The value depends on the number of samples, the more so the fewer there are: compare equal numbers alone.
#pragma once

#include <cstdint>

#include "gradus/data/dataset.h"
#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

// Means of features and how they vary together.
struct FeatureMoments {
  Tensor mean;        // f64[D]
  Tensor covariance;  // f64[D,D], the sum over samples divided by n - 1
  int64_t count = 0;  // of the samples; 0: not known
};

struct FeatureStatisticsOptions {
  dist::Group group = {};
};

// The moments of features that are seen batch by batch, in f64. Batches are merged by their means, so that no
// digits are lost where means are large.
// Source: Chan et al., "Algorithms for computing the sample variance", The American Statistician 1983.
class FeatureStatistics {
 public:
  explicit FeatureStatistics(FeatureStatisticsOptions options = {}) : group_(options.group) {}

  // Counts a batch. Nothing is recorded.
  // Shapes: features [N,D], D alike in all batches, at most 16384.
  // Errors: DTypeError unless floating point; ShapeError; ValueError for NaN, infinities and numbers beyond
  // 1e40, more than f32 can hold.
  void update(const Tensor& features);
  // The same without the batch's padding: `features` are those of batch.input.
  void update(const Tensor& features, const data::Batch& batch);
  // Forgets all batches of this rank.
  void reset() { *this = FeatureStatistics({.group = group_}); }

  // The following are collective: they are of the batches of all ranks, the same on each, whatever the number
  // of ranks (to rounding). They change nothing: updates may go on.
  // Errors: ShapeError when ranks have different D. ValueError for fewer than 2 samples, but for count().
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

// Returns |mean a - mean b|^2 + tr Ca + tr Cb - 2 tr (Ca Cb)^(1/2), at least 0, where C are covariances: the
// squared Wasserstein-2 distance between normal distributions of these moments. It comes from the eigenvalues
// of Ca^(1/2) Cb Ca^(1/2), of which negative ones are 0. It is finite also where fewer samples than features
// make the covariances singular: a warning says so.
// Errors: ShapeError, DTypeError unless f64, ValueError unless finite (means within 1e40, covariances within
// 1e100) and symmetric.
// Source: Heusel et al., "GANs trained by a two time-scale update rule converge to a local Nash equilibrium",
// NeurIPS 2017.
double frechet_distance(const FeatureMoments& a, const FeatureMoments& b);
// The same of statistics. Collective.
// Errors: also those of compute().
double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b);

}  // namespace gradus::metrics
