// Classification metrics. count() reduces a batch to a tensor of counts, which Metric adds over batches and
// ranks, and compute() derives the value: correct / counted (Accuracy), the matrix [target, prediction]
// (ConfusionMatrix, IoU), exp(summed cross-entropy / counted) (Perplexity), histograms of scores by class
// (AUC). Each count() checks the targets, for which the host waits for the device.
#include "gradus/train/metrics/classification.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::metrics {
namespace {

// The value of a metric without targets.
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Returns zero counts on the host.
Tensor counts(const Shape& shape, DType dtype = DType::kI64) {
  return zeros(shape, {.dtype = dtype, .device = kCPU});
}

void check_integers(const char* op, const char* name, const Tensor& x) {
  if (!is_integral(x.dtype()))
    throw DTypeError(op, "expected ", name, " of integers: ", name, ' ', describe(x),
                     conversion_hint(name, DType::kI64));
}

// Throws unless scores are [N,C,...] and targets i[N,...].
void check_classes(const char* op, const Tensor& scores, const Tensor& target) {
  check_integers(op, "target", target);
  Shape expected = scores.shape();
  if (scores.dim() < 2 || !is_floating(scores.dtype()))
    throw ShapeError(op, "expected scores [N,C,...] of floating point: scores ", describe(scores));
  expected.erase(1);
  if (target.shape() != expected)
    throw ShapeError(op, "expected target ", expected, ": scores ", describe(scores), ", target ",
                     describe(target));
}

// Throws unless all of x are classes. `what` is "target" or "output".
void check_range(const char* op, const char* what, const Tensor& x, int64_t classes) {
  if (x.numel() == 0) return;
  const auto low = amin(x).item<int64_t>(), high = amax(x).item<int64_t>();
  if (low < 0 || high >= classes)
    throw ValueError(op, "expected ", what, " of 0 to ", classes - 1, ", got ", low < 0 ? low : high, ": ",
                     what, ' ', describe(x));
}

// Classes as i64[N*...].
Tensor flat(const Tensor& x) { return flatten(to(x, DType::kI64)); }

// Scores [N,C,...] as [N*...,C].
Tensor rows(const Tensor& scores) {
  return reshape(movedim(scores, 1, -1), {scores.numel() / scores.size(1), scores.size(1)});
}

// Returns bool[...]: whether each target differs from ignore_index; all true without one.
Tensor counted(const Tensor& target, std::optional<int64_t> ignore_index) {
  return ignore_index ? ne(target, *ignore_index)
                      : full(target.shape(), 1, {.dtype = DType::kBool, .device = target.device()});
}

void check_number_of_classes(const char* op, int64_t classes) {
  constexpr int64_t kMaxClasses = 1 << 15;  // the matrix has the square of it
  if (classes < 1 || classes > kMaxClasses)
    throw ValueError(op, "expected 1 to ", kMaxClasses, " classes, got ", classes);
}

}  // namespace

Accuracy::Accuracy(AccuracyOptions options)
    : Metric("Accuracy", counts({2}), options.group), options_(options) {
  if (options.k < 1) throw ValueError(name(), "expected k of at least 1, got ", options.k);
}

Tensor Accuracy::count(const Tensor& output, const Tensor& target) const {
  check_classes(name(), output, target);
  const Tensor scores = rows(output), targets = flat(target), keep = counted(targets, options_.ignore_index);
  const Tensor known = where(keep, targets, 0);
  check_range(name(), "target", known, output.size(1));
  if (targets.numel() == 0) return counts({2});
  const Tensor right = logical_and(internal::in_top_k(scores, to(known, DType::kI64), options_.k), keep);
  return stack({count_nonzero(right), count_nonzero(keep)});
}

double Accuracy::compute() const {
  const std::vector<double> n = total().to_vector<double>();
  return n[1] > 0 ? n[0] / n[1] : kNone;
}

// The rank of a target is the number of classes with a higher score, NaN, or an equal score and a lower
// index.
Tensor internal::in_top_k(const Tensor& x, const Tensor& target, int64_t k) {
  if (k == 1) {
    const auto [highest, index] = raw::max(x, 1);  // a NaN is the highest
    return raw::logical_and(raw::eq(index, target), raw::eq(highest, highest));
  }
  const Tensor y = raw::unsqueeze(target, 1), classes = arange(x.size(1), {DType::kI64, x.device()});
  const Tensor none = zeros({}, {x.dtype(), x.device()});
  const Tensor own = raw::sum(raw::where(raw::eq(classes, y), x, none), {1}, true);
  // Not <=: higher, or NaN.
  const Tensor higher = raw::unary<functors::LogicalNot>(raw::le(x, own));
  const Tensor equal = raw::logical_and(raw::eq(x, own), raw::lt(classes, y));
  const Tensor rank = raw::sum(raw::logical_or(higher, equal), {1}, true);
  return raw::reshape(raw::logical_and(raw::lt(rank, k), raw::eq(own, own)), target.shape());
}

ConfusionMatrix::ConfusionMatrix(const char* name, const ConfusionMatrixOptions& options)
    : Metric(name,
             (check_number_of_classes(name, options.classes), counts({options.classes, options.classes})),
             options.group),
      options_(options) {}

Tensor ConfusionMatrix::count(const Tensor& output, const Tensor& target) const {
  const int64_t classes = options_.classes;
  if (is_floating(output.dtype())) {
    check_classes(name(), output, target);
    if (output.size(1) != classes)
      throw ShapeError(name(), "expected scores of ", classes, " classes: scores ", describe(output));
  } else {
    check_integers(name(), "target", target);
    if (output.shape() != target.shape())
      throw ShapeError(name(), "expected a class for each target: output ", describe(output), ", target ",
                       describe(target));
  }
  if (target.numel() == 0) return counts({classes, classes});
  const Tensor predicted = is_floating(output.dtype()) ? argmax(rows(output), 1) : flat(output);
  const Tensor targets = flat(target), keep = counted(targets, options_.ignore_index);
  const Tensor t = masked_select(targets, keep), p = masked_select(predicted, keep);
  check_range(name(), "target", t, classes);
  check_range(name(), "output", p, classes);
  return reshape(bincount(t * classes + p, {.minlength = classes * classes}), {classes, classes});
}

Tensor IoU::compute_per_class() const {
  const Tensor pairs = to(total(), DType::kF64), hits = diagonal(pairs);
  return hits / (sum(pairs, {1}) + sum(pairs, {0}) - hits);  // 0 / 0 for classes that do not occur
}

double IoU::compute() const { return nanmean(compute_per_class()).item<double>(); }

Perplexity::Perplexity(PerplexityOptions options)
    : Metric("Perplexity", counts({2}, DType::kF64), options.group), options_(options) {}

Tensor Perplexity::count(const Tensor& output, const Tensor& target) const {
  check_classes(name(), output, target);
  const Tensor targets = flat(target), keep = counted(targets, options_.ignore_index);
  const Tensor known = where(keep, targets, 0);
  check_range(name(), "target", known, output.size(1));
  if (targets.numel() == 0) return counts({2}, DType::kF64);
  const Tensor scores = output.dtype() == DType::kF64 ? output : to(output, DType::kF32);
  const Tensor own = gather(log_softmax(rows(scores), 1), 1, unsqueeze(to(known, DType::kI64), 1));
  const Tensor losses = where(keep, -to(squeeze(own, 1), DType::kF64), 0.0);
  return stack({sum(losses), to(count_nonzero(keep), DType::kF64)});
}

double Perplexity::mean_loss() const {
  const std::vector<double> n = total().to_vector<double>();
  return n[1] > 0 ? n[0] / n[1] : kNone;
}

double Perplexity::compute() const { return std::exp(mean_loss()); }

AUC::AUC(AUCOptions options)
    : Metric("AUC", counts({2, std::max<int64_t>(options.bins, 1)}), options.group), options_(options) {
  constexpr int64_t kMaxBins = 1 << 24;
  if (options.bins < 1 || options.bins > kMaxBins)
    throw ValueError(name(), "expected 1 to ", kMaxBins, " bins, got ", options.bins);
  if (!(options.low < options.high) || !std::isfinite(options.high - options.low))
    throw ValueError(name(), "expected finite low < high, got ", options.low, " and ", options.high);
}

// Returns i64[2, bins]: the number of scores by class (target 0 or 1) and bin.
Tensor AUC::count(const Tensor& output, const Tensor& target) const {
  check_floating(name(), "scores", output);
  if (output.shape() != target.shape())
    throw ShapeError(name(), "expected a target for each score: scores ", describe(output), ", target ",
                     describe(target));
  if (output.numel() == 0) return counts({2, options_.bins});
  if (!all(logical_or(eq(target, 0), eq(target, 1))).item<bool>())
    throw ValueError(name(), "expected targets of 0 and 1: target ", describe(target));
  if (any(isnan(output)).item<bool>()) throw ValueError(name(), "a score is NaN: scores ", describe(output));
  const Tensor scores = flatten(to(output, DType::kF64));
  const Tensor bin = floor((clamp(scores, options_.low, options_.high) - options_.low) *
                           (double(options_.bins) / (options_.high - options_.low)));
  const Tensor index = to(clamp(bin, 0, options_.bins - 1), DType::kI64) + flat(target) * options_.bins;
  return reshape(bincount(index, {.minlength = 2 * options_.bins}), {2, options_.bins});
}

namespace {

// Returns fractions of the pairs (score of class 0, score of class 1): those where class 1 has the higher
// bin, and those in one bin. NaN unless both classes occur.
std::pair<double, double> pairs_of(const Tensor& bins) {
  const std::vector<double> n = bins.to_vector<double>();
  const size_t size = n.size() / 2;
  double zeros = 0, ones = 0, right = 0, tied = 0;
  for (size_t i = 0; i < size; ++i) {
    right += n[size + i] * zeros;
    tied += n[size + i] * n[i];
    zeros += n[i], ones += n[size + i];
  }
  const double pairs = zeros * ones;
  return pairs > 0 ? std::pair(right / pairs, tied / pairs) : std::pair(kNone, kNone);
}

}  // namespace

double AUC::compute() const {
  const auto [right, tied] = pairs_of(total());
  return right + tied / 2;
}

double AUC::compute_error() const { return pairs_of(total()).second / 2; }

}  // namespace gradus::metrics
