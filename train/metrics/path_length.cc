// Perceptual path length: pairs of images at t and t + epsilon between two latents. Each rank keeps the distances of its
// pairs; compute() gathers and sorts them, so that percentiles and sum do not depend on the number of ranks.
#include "gradus/train/metrics/path_length.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::metrics {
namespace {

constexpr const char* kName = "PerceptualPathLength";
constexpr int64_t kMaxSize = 256;  // of compared images

Tensor unit(const Tensor& x) { return x / sqrt(sum(square(x), {-1}, true)); }

// Returns the distances of all ranks, in the order of ranks. Collective.
std::vector<double> gathered(const std::vector<double>& local, const dist::Group& group) {
  std::vector<int64_t> counts(size_t(group.size()));
  counts[size_t(group.rank())] = int64_t(local.size());
  const Tensor of_ranks = tensor(counts, {group.size()});
  dist::all_reduce(of_ranks, {.group = group});
  counts = of_ranks.to_vector<int64_t>();
  std::vector<double> all;
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::vector<double> zeros(size_t(counts[size_t(rank)]));
    const std::vector<double>& part = rank == group.rank() ? local : zeros;
    all.insert(all.end(), part.begin(), part.end());
  }
  const Tensor sum = tensor(all, {int64_t(all.size())});
  if (!all.empty()) dist::all_reduce(sum, {.group = group});
  return sum.to_vector<double>();
}

}  // namespace

PerceptualPathLength::PerceptualPathLength(PerceptualPathLengthOptions options)
    : options_(std::move(options)) {
  if (!(options_.epsilon > 0)) throw ValueError(kName, "expected epsilon above 0, got ", options_.epsilon);
}

Tensor PerceptualPathLength::interpolate(const Tensor& a, const Tensor& b, const Tensor& t) const {
  const Tensor at = a.dim() == 3 ? reshape(t, {-1, 1, 1}) : reshape(t, {-1, 1});
  if (options_.space == PerceptualPathLengthOptions::Space::kW) return a + (b - a) * at;
  const Tensor from = unit(a), to = unit(b), cosine = sum(from * to, {-1}, true);
  const Tensor angle = at * acos(clamp(cosine, -1, 1)), across = unit(to - cosine * from);
  return unit(from * cos(angle) + across * sin(angle)) * std::sqrt(double(a.size(-1)));
}

Tensor PerceptualPathLength::prepared(const Tensor& images) const {
  Tensor x = images;
  if (x.dim() != 4) throw ShapeError(kName, "expected images [N,C,H,W] of the generator, got ", describe(x));
  if (options_.crop) {
    const int64_t rows = x.size(2) / 8, columns = x.size(3) / 8;
    x = slice(slice(x, 2, 3 * rows, 7 * rows), 3, 2 * columns, 6 * columns);
  }
  // By the size before the crop, as the paper's code.
  const int64_t factor = images.size(2) / kMaxSize;
  return factor > 1 ? avg_pool2d(x, factor) : x;
}

void PerceptualPathLength::update(const Generator& generate, const Distance& distance, const Tensor& a,
                                  const Tensor& b, const Tensor& t) {
  const auto off = no_record();
  const bool in_z = options_.space == PerceptualPathLengthOptions::Space::kZ;
  if (!(a.dim() == 2 || (a.dim() == 3 && !in_z)) || a.shape() != b.shape() || t.shape() != Shape{a.size(0)})
    throw ShapeError(kName, "expected latents a and b of one shape, ", in_z ? "[N,D]" : "[N,D] or [N,L,D]",
                     ", and t [N]: a ", describe(a), ", b ", describe(b), ", t ", describe(t));
  for (const double v : t.to_vector<double>())
    if (!(v >= 0 && v <= 1)) throw ValueError(kName, "expected t in [0,1], got ", v);
  RandomGenerator& generator = *Context::current().generator;
  const RandomGenerator before = generator;
  const Tensor first = prepared(generate(interpolate(a, b, t)));
  generator = before;  // the same noise
  const Tensor second = prepared(generate(interpolate(a, b, t + options_.epsilon)));
  const Tensor d = distance(first, second);
  if (d.shape() != Shape{a.size(0)})
    throw ShapeError(kName, "expected distances [", a.size(0), "], got ", describe(d));
  for (const double v : d.to_vector<double>())
    distances_.push_back(v / (options_.epsilon * options_.epsilon));
}

double PerceptualPathLength::compute() const {
  std::vector<double> all = gathered(distances_, options_.group);
  if (all.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(all);
  const double last = double(all.size() - 1);
  const double low = all[size_t(std::floor(0.01 * last))], high = all[size_t(std::ceil(0.99 * last))];
  double sum = 0;
  int64_t count = 0;
  for (const double v : all)
    if (v >= low && v <= high) sum += v, ++count;
  return sum / double(count);
}

}  // namespace gradus::metrics
