// FeatureStatistics and frechet_distance (FID): mean and covariance of features [N,D], accumulated over
// batches and merged over ranks by the pairwise update of Chan et al., and the distance |mean a - mean b|^2 +
// tr Ca + tr Cb - 2 tr (Ca Cb)^(1/2), by eigendecomposition with Eigen. All computations are f64 on the host,
// without recording; count() and compute() are collective.
#include "gradus/train/metrics/frechet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <Eigen/Eigenvalues>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/warning.h"
#include "gradus/train/metrics/internal/features.h"
#include "gradus/train/metrics/metric.h"

namespace gradus::metrics {
namespace {

constexpr const char* kStatistics = "FeatureStatistics";
constexpr const char* kDistance = "frechet_distance";

// Returns x x^T for a vector x.
Tensor outer(const Tensor& x) { return unsqueeze(x, 1) * unsqueeze(x, 0); }

// Returns the number of features D, which all ranks with batches must share; `own` is this rank's, 0 without
// batches. 0 if no rank has batches. Collective: all-reduces (max D, max -D).
int64_t common_dims(int64_t own, const dist::Group& group) {
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor bounds = tensor({own > 0 ? double(own) : none, own > 0 ? -double(own) : none});
  dist::all_reduce(bounds, {.op = dist::ReduceOp::kMax, .group = group});
  const std::vector<double> b = bounds.to_vector<double>();
  if (b[0] == none) return 0;
  if (b[0] != -b[1])
    throw ShapeError(kStatistics, "ranks have from ", -b[1], " to ", b[0], " features for each sample");
  return static_cast<int64_t>(b[0]);
}

using Matrix = Eigen::MatrixXd;
using Solver = Eigen::SelfAdjointEigenSolver<Matrix>;

// Returns a view of a symmetric x [D,D], whose row-major and column-major layouts are equal.
Eigen::Map<const Matrix> matrix(const Tensor& x) { return {x.data<double>(), x.size(0), x.size(0)}; }

// Returns the square roots of the eigenvalues; those negative by rounding count as 0.
Eigen::VectorXd roots(const Solver& of) { return of.eigenvalues().cwiseMax(0).cwiseSqrt(); }

// Returns tr (a b)^(1/2) for symmetric a and b without negative eigenvalues. a b has the eigenvalues of the
// symmetric matrix a^(1/2) b a^(1/2).
double trace_of_root(const Matrix& a, const Matrix& b) {
  const Solver of_a(a);
  const Matrix root = of_a.eigenvectors() * roots(of_a).asDiagonal() * of_a.eigenvectors().transpose();
  return roots(Solver(root * b * root, Eigen::EigenvaluesOnly)).sum();
}

// Returns the moments on the host, row-major. Errors: as frechet_distance.
FeatureMoments checked(const FeatureMoments& given) {
  for (const Tensor* x : {&given.mean, &given.covariance}) {
    if (!x->defined()) throw ValueError(kDistance, "a mean or covariance is undefined");
    if (x->dtype() != DType::kF64) throw DTypeError(kDistance, "expected moments of f64, got ", describe(*x));
  }
  if (given.mean.dim() != 1 || given.mean.numel() < 1 ||
      given.covariance.shape() != Shape{given.mean.size(0), given.mean.size(0)})
    throw ShapeError(kDistance, "expected mean [D] and covariance [D,D]: mean ", describe(given.mean),
                     ", covariance ", describe(given.covariance));
  const auto host = [](const Tensor& x) { return raw::contiguous(raw::to(x, kCPU)); };
  const FeatureMoments m{host(given.mean), host(given.covariance), given.count};
  internal::check_magnitude(kDistance, "mean", m.mean, 1e40);
  internal::check_magnitude(kDistance, "covariance", m.covariance, 1e100);
  const auto c = matrix(m.covariance);
  if ((c - c.transpose()).cwiseAbs().maxCoeff() > 1e-9 * c.cwiseAbs().maxCoeff())
    throw ValueError(kDistance, "expected a symmetric covariance: covariance ", describe(m.covariance));
  return m;
}

// Warns if there are no more samples than features.
void warn_of_few(const FeatureMoments& m) {
  if (m.count > 0 && m.count <= m.mean.size(0))
    warn_once(concat("frechet_distance: ", m.count, " samples have ", m.mean.size(0),
                     " features each: the covariance is singular, and the distance says little"));
}

}  // namespace

void FeatureStatistics::update(const Tensor& features) {
  const auto off = no_record();
  const Tensor x = internal::checked_features(kStatistics, "features", features);
  constexpr int64_t kMaxFeatures = 1 << 14;  // the covariance has the square of it
  if (x.size(1) > kMaxFeatures || (mean_.defined() && x.size(1) != mean_.size(0)))
    throw ShapeError(kStatistics, "expected ", mean_.defined() ? "" : "at most ",
                     mean_.defined() ? mean_.size(0) : kMaxFeatures, " features for each sample: features ",
                     describe(features));
  const int64_t n = x.size(0), all = count_ + n;
  if (n == 0) return;
  // scatter: sum of (x - center)(x - center)^T over the batch. Merging two sets of n and m samples whose
  // means differ by s adds s s^T n m / (n + m).
  const Tensor center = gradus::mean(x, {0}), apart = x - center;
  const Tensor scatter = matmul(transpose(apart, 0, 1), apart);
  if (count_ == 0) {
    mean_ = center, scatter_ = scatter;
  } else {
    const Tensor shift = center - mean_;
    mean_ = mean_ + shift * (double(n) / double(all));
    scatter_ = scatter_ + scatter + outer(shift) * (double(n) * double(count_) / double(all));
  }
  count_ = all;
}

void FeatureStatistics::update(const Tensor& features, const data::Batch& batch) {
  const auto off = no_record();
  update(internal::without_padding(kStatistics, features, batch));
}

int64_t FeatureStatistics::count() const {
  const Tensor all = tensor({count_});
  dist::all_reduce(all, {.group = group_});
  return all.item<int64_t>();
}

FeatureMoments FeatureStatistics::compute() const {
  const auto off = no_record();
  const int64_t all = count(), dims = common_dims(mean_.defined() ? mean_.size(0) : 0, group_);
  if (all < 2) throw ValueError(kStatistics, "expected at least 2 samples, there are ", all);
  const TensorOptions f64{.dtype = DType::kF64, .device = kCPU};
  // The mean of all ranks; then the sum of the ranks' scatters around this mean.
  const Tensor own = mean_.defined() ? mean_ : zeros({dims}, f64);
  const Tensor center = own * (double(count_) / double(all));
  dist::all_reduce(center, {.group = group_});
  Tensor scatter = outer(own - center) * double(count_);
  if (scatter_.defined()) scatter = scatter + scatter_;
  dist::all_reduce(scatter, {.group = group_});
  return {center, scatter / double(all - 1), all};
}

double frechet_distance(const FeatureMoments& a, const FeatureMoments& b) {
  const FeatureMoments x = checked(a), y = checked(b);
  if (x.mean.size(0) != y.mean.size(0))
    throw ShapeError(kDistance, "expected as many features on both sides, got ", describe(x.mean), " and ",
                     describe(y.mean));
  warn_of_few(x), warn_of_few(y);
  const auto p = matrix(x.covariance), q = matrix(y.covariance);
  const double* u = x.mean.data<double>();
  const double* v = y.mean.data<double>();
  double apart = 0;
  for (int64_t i = 0; i < x.mean.numel(); ++i) apart += (u[i] - v[i]) * (u[i] - v[i]);
  return std::max(0.0, apart + p.trace() + q.trace() - 2 * trace_of_root(p, q));
}

double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b) {
  return frechet_distance(a.compute(), b.compute());
}

}  // namespace gradus::metrics
