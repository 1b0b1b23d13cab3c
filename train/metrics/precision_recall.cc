// Precision and recall by brute force: each sample has a closed ball that reaches to its k-th nearest
// neighbor in its own set; counts the samples of one set that lie in a ball of the other. Squared distances
// in f64, in parallel over samples, O((N + M)^2 D).
#include "gradus/train/metrics/precision_recall.h"

#include <algorithm>
#include <vector>

#include <Eigen/Core>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/train/metrics/internal/features.h"

namespace gradus::metrics {
namespace {

constexpr const char* kName = "precision_recall";

using Sample = Eigen::Map<const Eigen::ArrayXd>;

Sample sample(const Tensor& set, int64_t i) { return {set.data<double>() + i * set.size(1), set.size(1)}; }

// Computed from differences, not from products: equal samples have distance 0, and the result is symmetric.
double squared_distance(const Sample& a, const Sample& b) { return (a - b).square().sum(); }

// Returns the squared distance of each sample to its k-th nearest neighbor in the set.
std::vector<double> squared_radii(const Tensor& set, int64_t k) {
  const int64_t n = set.size(0);
  std::vector<double> radii(static_cast<size_t>(n));
  parallel_for(0, n, 1, [&](int64_t first, int64_t last) {
    std::vector<double> distances(static_cast<size_t>(n));
    for (int64_t i = first; i < last; ++i) {
      for (int64_t j = 0; j < n; ++j) distances[j] = squared_distance(sample(set, i), sample(set, j));
      std::nth_element(distances.begin(), distances.begin() + k, distances.end());
      radii[i] = distances[k];  // distances[0] is that of the sample to itself
    }
  });
  return radii;
}

// Returns the fraction of `samples` that lie in the ball of at least one sample of the set.
double fraction_inside(const Tensor& samples, const Tensor& set, int64_t k) {
  const std::vector<double> radii = squared_radii(set, k);
  std::vector<int64_t> inside(static_cast<size_t>(samples.size(0)));
  parallel_for(0, samples.size(0), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for (int64_t j = 0; j < set.size(0) && !inside[i]; ++j)
        inside[i] = squared_distance(sample(samples, i), sample(set, j)) <= radii[j];
  });
  return double(std::count(inside.begin(), inside.end(), 1)) / double(inside.size());
}

}  // namespace

PrecisionRecall precision_recall(const Tensor& real, const Tensor& generated,
                                 const PrecisionRecallOptions& o) {
  const internal::FeaturePair x = internal::checked_features(kName, real, generated);
  const int64_t min_size = std::min(real.size(0), generated.size(0));
  if (o.k < 1 || o.k >= min_size)
    throw ValueError(kName, "expected k of 1 to ", min_size - 1, ", fewer than there are samples, got ", o.k);
  return {fraction_inside(x.b, x.a, o.k), fraction_inside(x.a, x.b, o.k)};
}

}  // namespace gradus::metrics
