// Kernel Inception Distance (Binkowski et al., ICLR 2018): the unbiased estimate of the squared maximum mean
// discrepancy between features a [N, D] and b [M, D], as three matrix products of f64 on the host. Nothing is
// recorded.
#include "gradus/train/metrics/kernel_distance.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/train/metrics/internal/features.h"

namespace gradus::metrics {
namespace {

constexpr const char* kName = "kernel_distance";

// Returns the features as row-major f64 on the host.
// Errors: as kernel_distance.
internal::FeaturePair checked(const Tensor& a, const Tensor& b) {
  const internal::FeaturePair pair = internal::checked_features(kName, a, b);
  if (std::min(a.size(0), b.size(0)) < 2)
    throw ValueError(kName, "expected at least 2 samples in each set: a ", describe(a), ", b ", describe(b));
  return pair;
}

// Returns k[i, j] = (x[i] . y[j] / D + 1)^3. Shapes: x [N, D], y [M, D] -> [N, M].
Tensor kernel(const Tensor& x, const Tensor& y) {
  const Tensor k = matmul(x, transpose(y, 0, 1)) / double(x.size(1)) + 1;
  return k * k * k;
}

// The mean of the kernel over pairs of different samples of one set.
Tensor within(const Tensor& x) {
  const Tensor k = kernel(x, x);
  const double n = double(x.size(0));
  return (sum(k) - sum(diagonal(k))) / (n * (n - 1));
}

double squared_discrepancy(const Tensor& a, const Tensor& b) {
  return (within(a) + within(b) - 2 * mean(kernel(a, b))).item<double>();
}

}  // namespace

double kernel_distance(const Tensor& a, const Tensor& b) {
  const auto off = no_record();
  const internal::FeaturePair x = checked(a, b);
  return squared_discrepancy(x.a, x.b);
}

KernelDistance kernel_distance_of_subsets(const Tensor& a, const Tensor& b, const KernelDistanceOptions& o) {
  const auto off = no_record();
  const internal::FeaturePair x = checked(a, b);
  check_bounds(kName, "subsets", o.subsets, 1, 1 << 20);
  check_bounds(kName, "subset_size", o.subset_size, 2);
  const int64_t size = std::min({o.subset_size, a.size(0), b.size(0)});
  Context own = Context::current().snapshot();
  own.generator = std::make_shared<RandomGenerator>(o.seed);
  const ContextScope scope(own);
  // Returns `size` random rows without repetition.
  const auto some = [&](const Tensor& of) {
    return index_select(of, 0, narrow(randperm(of.size(0)), 0, 0, size));
  };
  std::vector<double> distances;
  for (int64_t i = 0; i < o.subsets; ++i) {
    const Tensor of_a = some(x.a), of_b = some(x.b);  // in this order: both draw random numbers
    distances.push_back(squared_discrepancy(of_a, of_b));
  }
  const Tensor all = tensor(distances, {o.subsets});
  return {mean(all).item<double>(), gradus::std(all, {}, {.correction = 0}).item<double>()};
}

}  // namespace gradus::metrics
