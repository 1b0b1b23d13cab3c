// Checks and conversion of features for metrics: copies [N, D] to row-major f64 on the host, and checks each
// number. Waits for a GPU.
#include "gradus/train/metrics/internal/features.h"

#include <cmath>

#include "gradus/autograd/grad_manager.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::metrics::internal {

void check_magnitude(const char* metric, const char* name, const Tensor& x, double largest) {
  const double* p = x.data<double>();
  for (int64_t i = 0; i < x.numel(); ++i)
    if (!(std::abs(p[i]) <= largest))
      throw ValueError(metric, "expected finite numbers below ", largest, ", got ", p[i], " in row ",
                       i / x.size(-1), " of ", name, ' ', describe(x));
}

Tensor checked_features(const char* metric, const char* name, const Tensor& features) {
  constexpr double kMaxMagnitude = 1e40;  // above the range of f32
  if (!features.defined()) throw ValueError(metric, name, " is undefined");
  if (features.dim() != 2 || features.size(1) < 1)
    throw ShapeError(metric, "expected ", name, " [N,D]: ", name, ' ', describe(features));
  check_floating(metric, name, features);
  const auto off = no_record();
  const Tensor x = raw::contiguous(raw::to(raw::to(features, kCPU), DType::kF64));
  check_magnitude(metric, name, x, kMaxMagnitude);
  return x;
}

FeaturePair checked_features(const char* metric, const Tensor& a, const Tensor& b) {
  const FeaturePair pair{checked_features(metric, "a", a), checked_features(metric, "b", b)};
  if (a.size(1) != b.size(1))
    throw ShapeError(metric, "expected as many features in both sets: a ", describe(a), ", b ", describe(b));
  return pair;
}

}  // namespace gradus::metrics::internal
