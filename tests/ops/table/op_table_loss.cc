// Rows of the op test table for cross_entropy and nll_loss. The reference computes PyTorch's formulas in f64.
// Each row is tested against its f64 reference, its gradients against difference quotients; op_table.h
// explains the fields.
#include <cmath>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

constexpr double kIgnored = -100;  // the default ignore_index
// Of five classes.
const std::vector<double> kWeight = {0.5, 2, 1, 0.25, 1.5};

struct Loss {
  const char* name;
  Reduction reduction = Reduction::kMean;
  bool weighted = false;
  double smoothing = 0;
  bool log_probs = false;  // nll_loss: x holds log-probabilities already
};

Array reduced(Array losses, Reduction reduction, double denominator) {
  if (reduction == Reduction::kNone) return losses;
  Array y{Shape{}};
  for (double v : losses.v) y.v[0] += v;
  if (reduction == Reduction::kMean) y.v[0] /= denominator;
  return y;
}

// x[N,C,D...] against class indices [N,D...], or probabilities of x's shape.
Array cross_entropy_of(const Array& x, const Array& target, const Loss& how) {
  const int64_t classes = x.shape[1];
  Array lp = how.log_probs ? x : along(x, 1, true, [](std::vector<double> v) {
    double s = 0;
    for (double e : v) s += std::exp(e);
    for (double& e : v) e -= std::log(s);
    return v;
  });
  Array losses;
  losses.shape = x.shape;
  losses.shape.erase(1);
  int64_t area = 1;
  for (int d = 2; d < x.dim(); ++d) area *= x.shape[d];
  const auto weight = [&](int64_t c) { return how.weighted ? kWeight[size_t(c)] : 1.0; };
  const bool probabilities = target.dim() == x.dim();
  double total = 0;
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    for (int64_t i = 0; i < area; ++i) {
      const auto at = [&](const Array& a, int64_t c) { return a.v[size_t((n * classes + c) * area + i)]; };
      double loss = 0, spread = 0;
      for (int64_t c = 0; c < classes; ++c) {
        spread -= weight(c) * at(lp, c) / double(classes);
        if (probabilities) loss -= at(target, c) * weight(c) * at(lp, c);
      }
      if (probabilities) {
        total += 1;
      } else {
        const double t = target.v[size_t(n * area + i)];
        if (t == kIgnored) {
          losses.v.push_back(0);
          continue;
        }
        total += weight(int64_t(t));
        loss = -weight(int64_t(t)) * at(lp, int64_t(t));
      }
      losses.v.push_back((1 - how.smoothing) * loss + how.smoothing * spread);
    }
  }
  return reduced(losses, how.reduction, total);
}

Tensor class_weights(const Tensor& x) {
  if (x.device().type == DeviceType::kMeta) return empty({5}, {.dtype = x.dtype(), .device = x.device()});
  return raw::to(raw::to(tensor(kWeight, {5}), x.dtype()), x.device());
}

}  // namespace

static const bool added = [] {
  const Loss losses[] = {
      {"mean"},
      {"sum", Reduction::kSum},
      {"none", Reduction::kNone},
      {"weighted mean", Reduction::kMean, true},
      {"weighted none", Reduction::kNone, true},
      {"smoothed", Reduction::kMean, false, 0.1},
      {"smoothed and weighted", Reduction::kMean, true, 0.2},
      {"smoothed sum", Reduction::kSum, true, 0.3},
  };
  const std::vector<Sample> samples = {{in({4, 5}, -3, 3), indices({4}, {2, 0, 4, 2})},
                                       {in({4, 5}, -3, 3), indices({4}, {kIgnored, 0, kIgnored, 3})},
                                       {in({1, 5}, -3, 3), indices({1}, 1)},
                                       {in({2, 5, 2, 1}, -3, 3), indices({2, 2, 1}, {3, 1, 0, 4})}};
  const std::vector<ErrorCase> errors = {
      ERROR_CASE(cross_entropy(zeros({4, 5}), zeros({3}, {.dtype = DType::kI64})), "[4,5]", "[3]"),
      ERROR_CASE(cross_entropy(zeros({1, 5}), tensor(std::vector<int64_t>{5}, {1})), "5"),
      ERROR_CASE(cross_entropy(zeros({1, 5}), zeros({1}, {.dtype = DType::kI64}), {.weight = zeros({4})}),
                 "[4]"),
      ERROR_CASE(cross_entropy(zeros({1, 5}), zeros({1, 5}), {.weight = zeros({4})}), "[4]"),
      ERROR_CASE(cross_entropy(zeros({4, 5}), zeros({4, 3})), "[4,5]", "[4,3]"),
      ERROR_CASE(cross_entropy(zeros({1, 5}), zeros({1}, {.dtype = DType::kI64}), {.label_smoothing = 1.5}),
                 "label_smoothing", "1.5"),
      ERROR_CASE(cross_entropy(zeros({1, 5}), zeros({1, 5}), {.label_smoothing = -1}), "label_smoothing",
                 "-1"),
      ERROR_CASE(cross_entropy(zeros({1, 5}), zeros({1}, {.dtype = DType::kI64}),
                               {.reduction = Reduction::kBatchMean}),
                 "kBatchMean"),
      ERROR_CASE(cross_entropy(zeros({1, 5}), zeros({1, 5}), {.reduction = Reduction::kBatchMean}),
                 "kBatchMean"),
      ERROR_CASE(cross_entropy(zeros({1, 5}, {.dtype = DType::kI64}), zeros({1}, {.dtype = DType::kI64})),
                 "i64[1,5]"),
      ERROR_CASE(cross_entropy(zeros({2, 0}), zeros({2}, {.dtype = DType::kI64})), "[2,0]"),
      ERROR_CASE(cross_entropy(zeros({}), zeros({}, {.dtype = DType::kI64})), "f32[]"),
      ERROR_CASE(
          cross_entropy(zeros({1, 5}), empty({1}, {.dtype = DType::kI64, .device = {DeviceType::kMeta, 0}})),
          "meta"),
  };
  const std::vector<ErrorCase> nll_errors = {
      ERROR_CASE(nll_loss(zeros({4, 5}), zeros({3}, {.dtype = DType::kI64})), "[4,5]", "[3]"),
      ERROR_CASE(nll_loss(zeros({4, 5}), zeros({4, 5})), "f32[4,5]"),
      ERROR_CASE(nll_loss(zeros({1, 5}), tensor(std::vector<int64_t>{-1}, {1})), "-1"),
      ERROR_CASE(nll_loss(zeros({1, 5}), zeros({1}, {.dtype = DType::kI64}), {.weight = zeros({4})}), "[4]"),
      ERROR_CASE(
          nll_loss(zeros({1, 5}), zeros({1}, {.dtype = DType::kI64}), {.reduction = Reduction::kBatchMean}),
          "kBatchMean"),
  };
  const std::vector<DType> dtypes = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
  for (Loss l : losses) {
    add_row({.op = "cross_entropy",
             .variant = l.name,
             .samples = samples,
             .run =
                 [l](X x) {
                   return cross_entropy(x[0], x[1],
                                        {.reduction = l.reduction,
                                         .weight = l.weighted ? class_weights(x[0]) : Tensor(),
                                         .label_smoothing = l.smoothing});
                 },
             .reference = [l](A x) { return cross_entropy_of(x[0], x[1], l); },
             .terms = 32,
             .dtypes = dtypes,
             .errors = errors});
    add_row(
        {.op = "cross_entropy",
         .variant = std::string("of probabilities, ") + l.name,
         .samples = {{in({4, 5}, -3, 3), in({4, 5}, 0, 0.5)}, {in({2, 5, 2}, -3, 3), in({2, 5, 2}, 0, 0.5)}},
         .run =
             [l](X x) {
               return cross_entropy(x[0], x[1],
                                    {.reduction = l.reduction,
                                     .weight = l.weighted ? class_weights(x[0]) : Tensor(),
                                     .label_smoothing = l.smoothing});
             },
         .reference = [l](A x) { return cross_entropy_of(x[0], x[1], l); },
         .terms = 32,
         .dtypes = dtypes});
    if (l.smoothing != 0) continue;
    l.log_probs = true;
    add_row({.op = "nll_loss",
             .variant = l.name,
             .samples = samples,
             .run =
                 [l](X x) {
                   return nll_loss(
                       x[0], x[1],
                       {.reduction = l.reduction, .weight = l.weighted ? class_weights(x[0]) : Tensor()});
                 },
             .reference = [l](A x) { return cross_entropy_of(x[0], x[1], l); },
             .terms = 16,
             .dtypes = dtypes,
             .errors = nll_errors});
  }
  // PyTorch's values are in tests/nn/layers/composite/sequence_loss.py.
  const auto lengths = [](int64_t n) { return full({2}, n, {.dtype = DType::kI64}); };
  const Tensor lp = log_softmax(zeros({4, 2, 3}), 2), targets = ones({2, 2}, {.dtype = DType::kI64});
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone})
    add_row(
        {.op = "ctc_loss",
         .variant = concat(int(reduction)),
         .samples = {{in({5, 3, 4}, -2, 2), indices({3, 2}, {1, 2, 3, 3, 2, 0})},
                     {in({5, 3, 4}, -2, 2), indices({5}, {1, 2, 3, 3, 2})}},
         .run = RUN(ctc_loss(log_softmax(x[0], 2), x[1], tensor({5, 4, 3}), tensor({2, 2, 1}),
                             {.reduction = reduction})),
         .terms = 64,
         .second_order = false,
         .dtypes = dtypes,
         .errors =
             {ERROR_CASE(ctc_loss(ones({3}), targets, lengths(4), lengths(2)), "f32[3]", "i64[2,2]"),
              ERROR_CASE(ctc_loss(lp, ones({3, 2}, {.dtype = DType::kI64}), lengths(4), lengths(2)),
                         "[4,2,3]", "[3,2]"),
              ERROR_CASE(ctc_loss(lp, ones({2, 2}), lengths(4), lengths(2)), "targets", "f32[2,2]"),
              ERROR_CASE(ctc_loss(lp, targets, ones({2}), lengths(2)), "input_lengths", "f32[2]"),
              ERROR_CASE(ctc_loss(lp, targets, lengths(5), lengths(2)), "input_lengths", "4", "5"),
              ERROR_CASE(ctc_loss(lp, targets, lengths(-1), lengths(2)), "input_lengths", "-1"),
              ERROR_CASE(ctc_loss(lp, targets, tensor({1}), lengths(2)), "input_lengths", "i64[1]"),
              ERROR_CASE(ctc_loss(lp, targets, lengths(4), lengths(3)), "target_lengths", "2", "3"),
              ERROR_CASE(ctc_loss(lp, tensor({1, 1, 1}), lengths(4), lengths(1)), "target_lengths", "3", "2"),
              ERROR_CASE(ctc_loss(lp, tensor({3, 1}), lengths(4), lengths(1)), "3"),
              ERROR_CASE(ctc_loss(lp, targets, lengths(4), lengths(2), {.blank = 3}), "blank", "3"),
              ERROR_CASE(ctc_loss(to(lp, DType::kI64), targets, lengths(4), lengths(2)), "log_probs", "i64"),
              ERROR_CASE(ctc_loss(lp, targets, lengths(4), lengths(2), {.reduction = Reduction::kBatchMean}),
                         "kBatchMean")},
         .shape_from_data = true,
         .mixes_devices = true});
  covered_elsewhere("cross_entropy_grad", "second order of cross_entropy and nll_loss");
  return true;
}();

}  // namespace gradus::optest
