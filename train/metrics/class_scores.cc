// class_scores: the Inception score, exp(mean KL(p(y|x) | p(y))) over splits of consecutive images, and
// statistics of the most probable classes, from class probabilities p [N,C]. All sums are f64 on the host;
// GPU tensors are copied and waited for. Nothing is recorded for backward.
#include "gradus/train/metrics/class_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::metrics {
namespace {

constexpr const char* kName = "class_scores";

// Probabilities [count,classes], row-major, one row for each image.
struct Rows {
  std::vector<double> values;
  int64_t count, classes;

  std::span<const double> operator[](int64_t i) const {
    return {values.data() + i * classes, static_cast<size_t>(classes)};
  }
};

// Returns the probabilities in f64. Errors: as class_scores. A negative number makes the sum NaN.
Rows checked_rows(const Tensor& p) {
  if (!p.defined()) throw ValueError(kName, "probabilities is undefined");
  if (p.dim() != 2 || p.size(0) < 1 || p.size(1) < 1)
    throw ShapeError(kName, "expected probabilities [N,C]: probabilities ", describe(p));
  check_floating(kName, "probabilities", p);
  const Rows rows{p.to_vector<double>(), p.size(0), p.size(1)};
  for (int64_t i = 0; i < rows.count; ++i) {
    double sum = 0;
    for (const double v : rows[i]) sum += v >= 0 ? v : std::numeric_limits<double>::quiet_NaN();
    if (!(std::abs(sum - 1) <= 1e-3))
      throw ValueError(kName, "expected probabilities of sum 1 in each row, but row ", i, " has the sum ",
                       sum, " (NaN: or a negative number): probabilities ", describe(p),
                       "; softmax(x, 1) makes probabilities of scores");
  }
  return rows;
}

// Returns the fraction of each class in the reference [classes] of counts; undefined: equal fractions.
std::vector<double> reference_shares(const Tensor& reference, int64_t classes) {
  if (!reference.defined()) return std::vector<double>(classes, 1 / double(classes));
  if (reference.shape() != Shape{classes})
    throw ShapeError(kName, "expected reference [", classes, "], got ", describe(reference));
  std::vector<double> shares = reference.to_vector<double>();
  double sum = 0;
  for (const double v : shares) sum += v >= 0 ? v : std::numeric_limits<double>::quiet_NaN();
  if (!(sum > 0) || !std::isfinite(sum))
    throw ValueError(kName, "expected counts of classes of at least 0, not all 0: reference ",
                     to_string(reference));
  for (double& v : shares) v /= sum;
  return shares;
}

// Returns the labels, one per row of p. Errors: as class_scores for labels.
std::vector<int64_t> checked_labels(const Tensor& labels, const Rows& p) {
  if (labels.shape() != Shape{p.count})
    throw ShapeError(kName, "expected labels [", p.count, "], got ", describe(labels));
  check_integers(kName, "classes", "labels", labels);
  const std::vector<int64_t> classes = labels.to_vector<int64_t>();
  for (const int64_t c : classes)
    if (c < 0 || c >= p.classes)
      throw ValueError(kName, "expected labels of 0 to ", p.classes - 1, ", got ", c);
  return classes;
}

// Returns exp(mean over i of sum_c p[i,c] log(p[i,c] / mean[c])) for rows [first, last), with 0 log 0 = 0.
double score(const Rows& p, int64_t first, int64_t last) {
  std::vector<double> mean(p.classes);
  for (int64_t i = first; i < last; ++i)
    for (int64_t c = 0; c < p.classes; ++c) mean[c] += p[i][c] / double(last - first);
  double sum = 0;
  for (int64_t i = first; i < last; ++i)
    for (int64_t c = 0; c < p.classes; ++c)
      if (p[i][c] > 0) sum += p[i][c] * (std::log(p[i][c]) - std::log(mean[c]));
  return std::exp(sum / double(last - first));
}

// Sets the mean and the (biased) standard deviation of the scores of `splits` ranges of rows.
void set_score(ClassScores& s, const Rows& p, int64_t splits) {
  double sum = 0, squares = 0;
  std::vector<double> scores;
  for (int64_t i = 0; i < splits; ++i)
    scores.push_back(score(p, i * p.count / splits, (i + 1) * p.count / splits));
  for (const double v : scores) sum += v;
  s.score = sum / double(splits);
  for (const double v : scores) squares += (v - s.score) * (v - s.score);
  s.score_std = std::sqrt(squares / double(splits));
}

}  // namespace

ClassScores class_scores(const Tensor& probabilities, const ClassScoresOptions& o) {
  const auto off = no_record();
  const Rows p = checked_rows(probabilities);
  const std::vector<double> reference = reference_shares(o.reference, p.classes);
  const std::vector<int64_t> labels =
      o.labels.defined() ? checked_labels(o.labels, p) : std::vector<int64_t>();
  if (o.splits < 1 || o.splits > p.count)
    throw ValueError(kName, "expected 1 to ", p.count, " splits, got ", o.splits);
  if (!(o.confident >= 0 && o.confident <= 1))
    throw ValueError(kName, "expected a probability, got confident = ", o.confident);
  ClassScores s{};
  set_score(s, p, o.splits);
  const double each = 1 / double(p.count);
  std::vector<int64_t> seen(p.classes);
  int64_t confident = 0, agreeing = 0;
  for (int64_t i = 0; i < p.count; ++i) {
    const auto largest = std::max_element(p[i].begin(), p[i].end());
    const int64_t taken = largest - p[i].begin();  // the most probable class, the first of equal ones
    ++seen[taken];
    confident += *largest >= o.confident;
    agreeing += o.labels.defined() && labels[i] == taken;
  }
  std::vector<double> shares;
  for (int64_t c = 0; c < p.classes; ++c) {
    shares.push_back(double(seen[c]) * each);
    s.covered += reference[c] > 0 && shares[c] >= reference[c] / 4;
    s.total_variation += std::abs(shares[c] - reference[c]) / 2;
  }
  s.confident = double(confident) * each;
  s.agreement = o.labels.defined() ? double(agreeing) * each : std::numeric_limits<double>::quiet_NaN();
  s.shares = tensor(shares, {p.classes});
  return s;
}

}  // namespace gradus::metrics
