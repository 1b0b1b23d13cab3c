// Rows of the op test table for element-wise losses, distances, and margin and embedding losses. References
// are PyTorch's formulas in f64, with each reduction. Each row is tested against its f64 reference, its
// gradients against difference quotients; op_table.h explains the fields.
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

const std::vector<DType> kFloats = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
const std::vector<DType> kWide = {DType::kF32, DType::kF64};
const std::pair<Reduction, const char*> kReductions[] = {
    {Reduction::kMean, "mean"}, {Reduction::kSum, "sum"}, {Reduction::kNone, "none"}};

Array reduced(const Array& losses, Reduction reduction) {
  if (reduction == Reduction::kNone) return losses;
  Array y{Shape{}};
  for (double v : losses.v) y.v[0] += v;
  if (reduction == Reduction::kMean) y.v[0] /= double(losses.v.size());
  return y;
}

double logsigmoid_of(double x) { return -std::log1p(std::exp(-x)); }

// Adds a row and the sample `empty`. A mean of no elements is NaN, which the gradient check does not take:
// then `empty` has a row of its own.
void add_with_empty(OpCase row, Reduction reduction, const Sample& empty) {
  if (reduction != Reduction::kMean) {
    row.samples.push_back(empty);
    return add_row(row);
  }
  add_row(row);
  row.variant += " of nothing", row.samples = {empty}, row.differentiable = false, row.errors = {};
  add_row(row);
}

// The rows of an element-wise loss f(x, t), one per reduction. x and t are uniform in these intervals.
struct PointLoss {
  const char* op;
  const char* variant;
  std::function<Tensor(const Tensor&, const Tensor&, Reduction)> run;
  std::function<double(double, double)> f;
  double x_low = -3, x_high = 3, t_low = -3, t_high = 3;
  std::vector<ErrorCase> errors = {};
  bool apart = false;  // x and t are never equal: the loss has a kink there
};

void add(const PointLoss& l) {
  std::vector<ErrorCase> errors = l.errors;
  const auto run = [l](const Tensor& x, const Tensor& t) { return l.run(x, t, Reduction::kMean); };
  errors.push_back(ERROR_CASE(run(empty({2, 3}), empty({3})), "[2,3]", "[3]"));
  errors.push_back(ERROR_CASE(run(empty({2}), empty({2}, {.dtype = DType::kI64})), "i64[2]"));
  errors.push_back(
      ERROR_CASE(run(empty({2}), empty({2}, {.device = {DeviceType::kMeta, 0}})), "meta", "cpu"));
  if (std::string(l.op) != "kl_div")
    errors.push_back(ERROR_CASE(l.run(ones({2}), ones({2}), Reduction::kBatchMean), "kBatchMean"));
  for (const auto& [reduction, name] : kReductions) {
    std::vector<Sample> samples;
    const double gap = l.apart ? 0.2 : 0;
    const auto sample = [&](const Shape& s) {
      return Sample{in(s, l.x_low + gap, l.x_high), in(s, l.t_low, l.apart ? l.x_low : l.t_high)};
    };
    for (const Shape& s : {Shape{3, 4}, Shape{}, Shape{2, 3, 2, 2}}) samples.push_back(sample(s));
    add_with_empty({.op = l.op,
                    .variant = std::string(l.variant) + (*l.variant ? " " : "") + name,
                    .samples = samples,
                    .run = [l, r = reduction](X x) { return l.run(x[0], x[1], r); },
                    .reference =
                        [l, r = reduction](A x) {
                          Array y = x[0];
                          for (size_t i = 0; i < y.v.size(); ++i) y.v[i] = l.f(x[0].v[i], x[1].v[i]);
                          return reduced(y, r);
                        },
                    .terms = 48,
                    // A sum of 16-bit losses rounds each of them first.
                    .dtypes = reduction == Reduction::kNone ? kFloats : kWide,
                    .errors = errors,
                    .step = 1e-5},
                   reduction, sample({0, 3}));
  }
}

// A loss f(x) whose target is one number for all elements.
void add_of_number(const char* op, double target, const std::function<Tensor(const Tensor&, Reduction)>& run,
                   const std::function<double(double)>& f) {
  for (const auto& [reduction, name] : kReductions)
    add_row({.op = op,
             .variant = concat(target, " ", name),
             .samples = {{in({3, 4})}, {in({})}, {in({2, 3, 2, 2})}},
             .run = [run, r = reduction](X x) { return run(x[0], r); },
             .reference =
                 [f, r = reduction](A x) {
                   Array y = x[0];
                   for (double& v : y.v) v = f(v);
                   return reduced(y, r);
                 },
             .terms = 48,
             .dtypes = reduction == Reduction::kNone ? kFloats : kWide,
             .errors = {ERROR_CASE(run(empty({2}, {.dtype = DType::kI64}), Reduction::kMean), "i64[2]"),
                        ERROR_CASE(run(ones({2}), Reduction::kBatchMean), "kBatchMean")},
             .step = 1e-5});
}

void add_regression() {
  add_of_number(
      "mse_loss_to", 0.5, [](const Tensor& x, Reduction r) { return mse_loss_to(x, 0.5, {.reduction = r}); },
      [](double x) { return (x - 0.5) * (x - 0.5); });
  add({"mse_loss", "",
       [](const Tensor& x, const Tensor& t, Reduction r) { return mse_loss(x, t, {.reduction = r}); },
       [](double x, double t) { return (x - t) * (x - t); }});
  add({.op = "l1_loss",
       .variant = "",
       .run = [](const Tensor& x, const Tensor& t, Reduction r) { return l1_loss(x, t, {.reduction = r}); },
       .f = [](double x, double t) { return std::abs(x - t); },
       .x_low = 0,
       .apart = true});
  for (double beta : {1.0, 0.25, 8.0, 0.0})
    add({.op = "smooth_l1_loss",
         .variant = beta == 1      ? ""
                    : beta == 0.25 ? "sharp"
                    : beta == 8    ? "square"
                                   : "l1",
         .run = [=](const Tensor& x, const Tensor& t,
                    Reduction r) { return smooth_l1_loss(x, t, {.reduction = r, .beta = beta}); },
         .f =
             [=](double x, double t) {
               const double d = std::abs(x - t);
               return d < beta ? d * d / (2 * beta) : d - beta / 2;
             },
         .x_low = 0,
         .errors = {ERROR_CASE(smooth_l1_loss(empty({2}), empty({2}), {.beta = -1}), "beta", "-1")},
         .apart = true});
  for (double delta : {1.0, 0.25, 8.0})
    add({"huber_loss",
         delta == 1      ? ""
         : delta == 0.25 ? "sharp"
                         : "square",
         [=](const Tensor& x, const Tensor& t, Reduction r) {
           return huber_loss(x, t, {.reduction = r, .delta = delta});
         },
         [=](double x, double t) {
           const double d = std::abs(x - t);
           return d <= delta ? d * d / 2 : delta * (d - delta / 2);
         },
         -3,
         3,
         -3,
         3,
         {ERROR_CASE(huber_loss(empty({2}), empty({2}), {.delta = 0}), "delta", "0")}});
}

void add_likelihoods() {
  add({"binary_cross_entropy",
       "",
       [](const Tensor& x, const Tensor& t, Reduction r) {
         return binary_cross_entropy(x, t, {.reduction = r});
       },
       [](double x, double t) { return -t * std::log(x) - (1 - t) * std::log(1 - x); },
       0.1,
       0.9,
       0,
       1,
       {ERROR_CASE(binary_cross_entropy(ones({2, 3}), ones({2, 3}), {.weight = ones({2})}), "weight",
                   "[2]")}});
  for (const double target : {0., 1., 0.9})
    add_of_number(
        "binary_cross_entropy_with_logits_to", target,
        [=](const Tensor& x, Reduction r) {
          return binary_cross_entropy_with_logits_to(x, target, {.reduction = r});
        },
        [=](double x) { return -target * logsigmoid_of(x) - (1 - target) * logsigmoid_of(-x); });
  add_row({.op = "binary_cross_entropy_with_logits_to",
           .variant = "weighted",
           .samples = {{in({3, 4}), in({4}, 0, 2)}},
           .run = RUN(binary_cross_entropy_with_logits_to(x[0], 0.25, {.weight = x[1]})),
           .reference =
               [](A x) {
                 Array y = x[0];
                 for (size_t i = 0; i < y.v.size(); ++i)
                   y.v[i] = -broadcast_at(x[1], y.shape, int64_t(i)) *
                            (0.25 * logsigmoid_of(x[0].v[i]) + 0.75 * logsigmoid_of(-x[0].v[i]));
                 return reduced(y, Reduction::kMean);
               },
           .terms = 48});
  add({"binary_cross_entropy_with_logits",
       "",
       [](const Tensor& x, const Tensor& t, Reduction r) {
         return binary_cross_entropy_with_logits(x, t, {.reduction = r});
       },
       [](double x, double t) { return -t * logsigmoid_of(x) - (1 - t) * logsigmoid_of(-x); },
       -9,
       9,
       0,
       1,
       {ERROR_CASE(binary_cross_entropy_with_logits(ones({2, 3}), ones({2, 3}), {.weight = ones({2})}),
                   "weight", "[2]"),
        ERROR_CASE(binary_cross_entropy_with_logits(ones({3}), ones({3}), {.pos_weight = ones({2, 3})}),
                   "pos_weight", "[2,3]")}});
  add({"soft_margin_loss", "",
       [](const Tensor& x, const Tensor& t, Reduction r) { return soft_margin_loss(x, t, {.reduction = r}); },
       [](double x, double t) { return -logsigmoid_of(x * t); }});
  add({"kl_div",
       "",
       [](const Tensor& x, const Tensor& t, Reduction r) { return kl_div(x, t, {.reduction = r}); },
       [](double x, double t) { return t * (std::log(t) - x); },
       -3,
       0,
       0.1,
       1,
       {ERROR_CASE(kl_div(ones({}), ones({}), {.reduction = Reduction::kBatchMean}), "kBatchMean",
                   "f32[]")}});
  add({"kl_div", "of logarithms",
       [](const Tensor& x, const Tensor& t, Reduction r) {
         return kl_div(x, t, {.reduction = r, .log_target = true});
       },
       [](double x, double t) { return std::exp(t) * (t - x); }, -3, 0, -2, 0});
  for (bool full : {false, true}) {
    const auto stirling = [=](double t) {
      return full && t > 1 ? t * std::log(t) - t + 0.5 * std::log(2 * std::numbers::pi * t) : 0;
    };
    const std::vector<ErrorCase> errors = {
        ERROR_CASE(poisson_nll_loss(ones({2}), ones({2}), {.eps = 0}), "eps", "0")};
    add({"poisson_nll_loss", full ? "full" : "",
         [=](const Tensor& x, const Tensor& t, Reduction r) {
           return poisson_nll_loss(x, t, {.reduction = r, .full = full});
         },
         [=](double x, double t) { return std::exp(x) - t * x + stirling(t); }, -2, 2, 1.1, 5, errors});
    add({"poisson_nll_loss", full ? "of rates, full" : "of rates",
         [=](const Tensor& x, const Tensor& t, Reduction r) {
           return poisson_nll_loss(x, t, {.reduction = r, .log_input = false, .full = full, .eps = 0.125});
         },
         [=](double x, double t) { return x - t * std::log(x + 0.125) + stirling(t); }, 0.1, 4, 1.1, 5});
    const auto gaussian = [=](double x, double t, double var) {
      return 0.5 * (std::log(var) + (x - t) * (x - t) / var) +
             (full ? 0.5 * std::log(2 * std::numbers::pi) : 0);
    };
    for (const auto& [r, name] : kReductions)
      add_with_empty(
          {.op = "gaussian_nll_loss",
           .variant = std::string(full ? "full " : "") + name,
           .samples = {{in({3, 4}), in({3, 4}), in({3, 4}, 0.3, 2)},
                       {in({}), in({}), in({}, 0.3, 2)},
                       {in({3, 4}), in({3, 4}), in({3, 1}, 0.3, 2)},
                       {in({3, 4}), in({3, 4}), in({3}, 0.3, 2)}},
           .run = [full, r = r](
                      X x) { return gaussian_nll_loss(x[0], x[1], x[2], {.reduction = r, .full = full}); },
           .reference =
               [=, r = r](A x) {
                 Array y = x[0];
                 const size_t per_var = x[2].v.empty() ? 1 : y.v.size() / x[2].v.size();
                 for (size_t i = 0; i < y.v.size(); ++i)
                   y.v[i] = gaussian(x[0].v[i], x[1].v[i], x[2].v[i / per_var]);
                 return reduced(y, r);
               },
           .terms = 48,
           .errors = {ERROR_CASE(gaussian_nll_loss(ones({2, 3}), ones({3}), ones({2, 3})), "[2,3]", "[3]"),
                      ERROR_CASE(gaussian_nll_loss(ones({2, 3}), ones({2, 3}), ones({3})), "var", "[3]"),
                      ERROR_CASE(gaussian_nll_loss(ones({}), ones({}), ones({3})), "var", "[3]"),
                      ERROR_CASE(gaussian_nll_loss(ones({2}), ones({2}), ones({2}),
                                                   {.reduction = Reduction::kBatchMean}),
                                 "kBatchMean"),
                      ERROR_CASE(gaussian_nll_loss(ones({2}), ones({2}, {.dtype = DType::kI64}), ones({2})),
                                 "i64[2]"),
                      ERROR_CASE(gaussian_nll_loss(ones({2}), ones({2}), ones({2}), {.eps = 0}), "eps",
                                 "0")}},
          r, {in({0, 4}), in({0, 4}), in({0, 4}, 0.3, 2)});
  }
}

// Weights, kBatchMean, and values at the limits of a loss's domain.
void add_variants() {
  add_row({.op = "binary_cross_entropy",
           .variant = "weighted",
           .samples = {{in({3, 4}, 0.1, 0.9), in({3, 4}, 0, 1), in({4}, 0, 2)},
                       {in({3, 4}, 0.1, 0.9), in({3, 4}, 0, 1), in({3, 1}, 0, 2)}},
           .run = RUN(binary_cross_entropy(x[0], x[1], {.weight = x[2]})),
           .reference =
               [](A x) {
                 Array y = x[0];
                 for (size_t i = 0; i < y.v.size(); ++i)
                   y.v[i] = -broadcast_at(x[2], y.shape, int64_t(i)) *
                            (x[1].v[i] * std::log(x[0].v[i]) + (1 - x[1].v[i]) * std::log(1 - x[0].v[i]));
                 return reduced(y, Reduction::kMean);
               },
           .terms = 48});
  add_row({.op = "binary_cross_entropy",
           .variant = "at the ends",
           .samples = {{{.shape = {6}, .fixed = true, .values = {0, 1, 0, 1, 0.5, 1}},
                        {.shape = {6}, .fixed = true, .values = {0, 1, 1, 0, 0.5, 0.25}}}},
           .run = RUN(binary_cross_entropy(x[0], x[1], {.reduction = Reduction::kNone})),
           .reference =
               [](A) {
                 Array y(Shape{6});
                 y.v = {0, 0, 100, 100, std::numbers::ln2, 75};
                 return y;
               },
           .differentiable = false,
           .dtypes = {DType::kF32}});
  add_row({.op = "binary_cross_entropy_with_logits",
           .variant = "weighted",
           .samples = {{in({3, 4}), in({3, 4}, 0, 1), in({3, 1}, 0, 2), in({4}, 0, 3)}},
           .run = RUN(binary_cross_entropy_with_logits(x[0], x[1], {.weight = x[2], .pos_weight = x[3]})),
           .reference =
               [](A x) {
                 Array y = x[0];
                 for (size_t i = 0; i < y.v.size(); ++i)
                   y.v[i] = -broadcast_at(x[2], y.shape, int64_t(i)) *
                            (broadcast_at(x[3], y.shape, int64_t(i)) * x[1].v[i] * logsigmoid_of(x[0].v[i]) +
                             (1 - x[1].v[i]) * logsigmoid_of(-x[0].v[i]));
                 return reduced(y, Reduction::kMean);
               },
           .terms = 48});
  add_row({.op = "binary_cross_entropy_with_logits",
           .variant = "far out",
           .samples = {{{.shape = {4}, .fixed = true, .values = {200, -200, 200, -200}},
                        {.shape = {4}, .fixed = true, .values = {0, 1, 1, 0}}}},
           .run = RUN(binary_cross_entropy_with_logits(x[0], x[1], {.reduction = Reduction::kNone})),
           .reference =
               [](A) {
                 Array y(Shape{4});
                 y.v = {200, 200, 0, 0};
                 return y;
               },
           .differentiable = false,
           .dtypes = {DType::kF32}});
  add_row(
      {.op = "kl_div",
       .variant = "batchmean",
       .samples = {{in({3, 4}, -3, 0), in({3, 4}, 0.1, 1)}, {in({2, 2, 2}, -3, 0), in({2, 2, 2}, 0.1, 1)}},
       .run = RUN(kl_div(x[0], x[1], {.reduction = Reduction::kBatchMean})),
       .reference =
           [](A x) {
             Array y{Shape{}};
             for (size_t i = 0; i < x[0].v.size(); ++i)
               y.v[0] += x[1].v[i] * (std::log(x[1].v[i]) - x[0].v[i]) / double(x[0].shape[0]);
             return y;
           },
       .terms = 48});
  add_row({.op = "kl_div",
           .variant = "no target",
           .samples = {{in({2, 3}, -3, 0), {.shape = {2, 3}, .fixed = true, .values = {0, 0, 0, 0, 0, 0}}}},
           .run = RUN(kl_div(x[0], x[1])),
           .reference = [](A) { return Array(Shape{}); },
           .differentiable = false,
           .dtypes = {DType::kF32}});
}

// squares_plus: added to the squared norms.
double cosine(const double* a, const double* b, int64_t n, double squares_plus = 0) {
  double ab = 0, aa = squares_plus, bb = squares_plus;
  for (int64_t i = 0; i < n; ++i) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  return ab / std::sqrt(aa) / std::sqrt(bb);
}

// The p-norm of a - b + eps.
double distance(const double* a, const double* b, int64_t n, double p, double eps) {
  double s = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double d = std::abs(a[i] - b[i] + eps);
    s = std::isinf(p) ? std::max(s, d) : s + std::pow(d, p);
  }
  return std::isinf(p) ? s : std::pow(s, 1 / p);
}

void add_distances() {
  for (double p : {2.0, 1.0, 3.0, std::numeric_limits<double>::infinity()})
    for (bool keepdim : {false, true})
      add_row({.op = "pairwise_distance",
               .variant = std::to_string(p) + (keepdim ? " keepdim" : ""),
               .samples = {{in({3, 5}, 1, 2), in({3, 5}, -1, 0)},
                           {in({2, 2, 3}, 1, 2), in({2, 2, 3}, -1, 0)},
                           {in({4}, 1, 2), in({4}, -1, 0)},
                           {in({0, 3}), in({0, 3})}},
               .run = RUN(pairwise_distance(x[0], x[1], {.p = p, .eps = 0.01, .keepdim = keepdim})),
               .reference =
                   [=](A x) {
                     Array y;
                     y.shape = x[0].shape;
                     const int64_t n = y.shape.back();
                     keepdim ? void(y.shape[y.shape.size() - 1] = 1) : y.shape.erase(y.shape.size() - 1);
                     for (int64_t row = 0; row < y.shape.product(); ++row)
                       y.v.push_back(distance(x[0].v.data() + row * n, x[1].v.data() + row * n, n, p, 0.01));
                     return y;
                   },
               .terms = 32,
               .errors = {
                   ERROR_CASE(pairwise_distance(ones({2, 3}), ones({2, 4})), "[2,3]", "[2,4]"),
                   ERROR_CASE(pairwise_distance(ones({}), ones({})), "f32[]"),
                   ERROR_CASE(pairwise_distance(ones({2}), ones({2}, {.dtype = DType::kI64})), "i64[2]")}});
  // Rows away from zero, near which gradients grow without bound.
  add_row({.op = "cosine_similarity",
           .samples = {{off_zero({3, 5}), off_zero({3, 5})},
                       {in({1, 4}, 0.5, 1), in({1, 4}, -1, -0.5)},
                       {in({0, 3}), in({0, 3})}},
           .run = RUN(cosine_similarity(x[0], x[1])),
           .reference =
               [](A x) {
                 Array y(Shape{x[0].shape[0]});
                 const int64_t n = x[0].shape[1];
                 for (size_t i = 0; i < y.v.size(); ++i)
                   y.v[i] = cosine(&x[0].v[i * size_t(n)], &x[1].v[i * size_t(n)], n);
                 return y;
               },
           .terms = 32,
           .errors = {ERROR_CASE(cosine_similarity(ones({2, 3}), ones({2, 4})), "[2,3]", "[2,4]"),
                      ERROR_CASE(cosine_similarity(ones({2}), ones({2})), "1", "[2]"),
                      ERROR_CASE(cosine_similarity(ones({}), ones({})), "f32[]"),
                      ERROR_CASE(cosine_similarity(ones({2, 2}), ones({2, 2}, {.dtype = DType::kI64})),
                                 "i64[2,2]")}});
}

// Targets 1 and -1.
Input signs(const Shape& shape) {
  Input i{.shape = shape, .fixed = true, .dtype = DType::kI64};
  for (int64_t k = 0; k < shape.product(); ++k) i.values.push_back(k % 3 == 1 ? -1 : 1);
  return i;
}

void add_embeddings() {
  const ErrorCase integers =
      ERROR_CASE(hinge_embedding_loss(ones({2}, {.dtype = DType::kI64}), ones({2})), "i64[2]");
  for (const auto& [reduction, name] : kReductions) {
    const Reduction r = reduction;
    add_with_empty({.op = "hinge_embedding_loss",
                    .variant = name,
                    .samples = {{in({3, 4}, 0, 2), signs({3, 4})}, {in({}, 0, 2), signs({})}},
                    .run = RUN(hinge_embedding_loss(x[0], x[1], {.margin = 0.75, .reduction = r})),
                    .reference =
                        [=](A x) {
                          Array y = x[0];
                          for (size_t i = 0; i < y.v.size(); ++i)
                            if (x[1].v[i] == -1) y.v[i] = std::max(0.0, 0.75 - y.v[i]);
                          return reduced(y, r);
                        },
                    .terms = 32,
                    .errors = {ERROR_CASE(hinge_embedding_loss(ones({2}), ones({3})), "[2]", "[3]"),
                               ERROR_CASE(hinge_embedding_loss(
                                              ones({2}), empty({2}, {.device = {DeviceType::kMeta, 0}})),
                                          "meta"),
                               ERROR_CASE(hinge_embedding_loss(ones({2}), ones({2}),
                                                               {.reduction = Reduction::kBatchMean}),
                                          "kBatchMean"),
                               integers}},
                   r, {in({0}), signs({0})});
    add_with_empty(
        {.op = "margin_ranking_loss",
         .variant = name,
         .samples = {{in({3, 4}), in({3, 4}), signs({3, 4})}, {in({3, 1}), in({4}), signs({4})}},
         .run = RUN(margin_ranking_loss(x[0], x[1], x[2], {.margin = 0.25, .reduction = r})),
         .reference =
             [=](A x) {
               Array y(broadcast_shapes(broadcast_shapes(x[0].shape, x[1].shape, "reference"), x[2].shape,
                                        "reference"));
               for (size_t i = 0; i < y.v.size(); ++i) {
                 const auto at = [&](size_t k) { return broadcast_at(x[k], y.shape, int64_t(i)); };
                 y.v[i] = std::max(0.0, 0.25 - at(2) * (at(0) - at(1)));
               }
               return reduced(y, r);
             },
         .terms = 32,
         .errors = {ERROR_CASE(margin_ranking_loss(ones({2}), ones({3}), ones({})), "[2]", "[3]"),
                    ERROR_CASE(margin_ranking_loss(ones({2}), ones({2}), ones({3})), "[2]", "[3]"),
                    ERROR_CASE(margin_ranking_loss(ones({2}), ones({2}, {.dtype = DType::kI64}), ones({2})),
                               "i64[2]"),
                    ERROR_CASE(margin_ranking_loss(ones({2}), ones({2}),
                                                   empty({2}, {.device = {DeviceType::kMeta, 0}})),
                               "meta"),
                    ERROR_CASE(margin_ranking_loss(ones({2}), ones({2}), ones({2}),
                                                   {.reduction = Reduction::kBatchMean}),
                               "kBatchMean")}},
        r, {in({0}), in({0}), signs({0})});
    add_with_empty(
        {.op = "cosine_embedding_loss",
         .variant = name,
         .samples = {{in({5, 3}), in({5, 3}), signs({5})}, {in({3}), in({3}), signs({})}},
         .run = RUN(cosine_embedding_loss(x[0], x[1], x[2], {.margin = -0.5, .reduction = r})),
         .reference =
             [=](A x) {
               Array y(x[2].shape);
               const int64_t n = x[0].shape.back();
               for (size_t i = 0; i < y.v.size(); ++i) {
                 const double c = cosine(&x[0].v[i * size_t(n)], &x[1].v[i * size_t(n)], n, 1e-12);
                 y.v[i] = x[2].v[i] == 1 ? 1 - c : std::max(0.0, c + 0.5);
               }
               return reduced(y, r);
             },
         .terms = 64,
         .errors = {ERROR_CASE(cosine_embedding_loss(ones({2, 3}), ones({2, 4}), ones({2})), "[2,3]",
                               "[2,4]"),
                    ERROR_CASE(cosine_embedding_loss(ones({2, 3}), ones({2, 3}), ones({3})), "[2,3]", "[3]"),
                    ERROR_CASE(cosine_embedding_loss(ones({2}), ones({2}, {.dtype = DType::kI64}), ones({})),
                               "i64[2]"),
                    ERROR_CASE(cosine_embedding_loss(ones({2}), ones({2}),
                                                     empty({}, {.device = {DeviceType::kMeta, 0}})),
                               "meta"),
                    ERROR_CASE(cosine_embedding_loss(ones({2}), ones({2}), ones({}),
                                                     {.reduction = Reduction::kBatchMean}),
                               "kBatchMean")}},
        r, {in({0, 3}), in({0, 3}), signs({0})});
    for (bool swap : {false, true}) {
      const auto reference = [=](double p, double margin, double eps) {
        return [=](A x) {
          Array y;
          y.shape = x[0].shape;
          const int64_t n = y.shape.back();
          y.shape.erase(y.shape.size() - 1);
          for (int64_t row = 0; row < y.shape.product(); ++row) {
            const size_t i = size_t(row * n);
            double far = distance(x[0].v.data() + i, x[2].v.data() + i, n, p, eps);
            if (swap) far = std::min(far, distance(x[1].v.data() + i, x[2].v.data() + i, n, p, eps));
            y.v.push_back(
                std::max(0.0, distance(x[0].v.data() + i, x[1].v.data() + i, n, p, eps) - far + margin));
          }
          return reduced(y, r);
        };
      };
      const std::vector<Sample> samples = {{in({4, 3}), in({4, 3}), in({4, 3})}, {in({5}), in({5}), in({5})}};
      const auto loss = [](const Tensor& a, const Tensor& b, const Tensor& c) {
        return triplet_margin_loss(a, b, c);
      };
      add_with_empty(
          {.op = "triplet_margin_loss",
           .variant = std::string(name) + (swap ? " swap" : ""),
           .samples = samples,
           .run = RUN(triplet_margin_loss(
               x[0], x[1], x[2], {.margin = 0.5, .p = 3, .eps = 1e-3, .swap = swap, .reduction = r})),
           .reference = reference(3, 0.5, 1e-3),
           .terms = 64,
           .errors = {ERROR_CASE(loss(ones({2, 3}), ones({3}), ones({2, 3})), "[2,3]", "[3]"),
                      ERROR_CASE(loss(ones({2, 3}), ones({2, 3}), ones({2, 4})), "[2,3]", "[2,4]"),
                      ERROR_CASE(loss(ones({}), ones({}), ones({})), "f32[]"),
                      ERROR_CASE(loss(ones({2}), ones({2}, {.dtype = DType::kI64}), ones({2})), "i64[2]"),
                      ERROR_CASE(triplet_margin_loss(ones({2}), ones({2}), ones({2}),
                                                     {.reduction = Reduction::kBatchMean}),
                                 "kBatchMean")}},
          r, {in({0, 3}), in({0, 3}), in({0, 3})});
      add_with_empty(
          {.op = "triplet_margin_with_distance_loss",
           .variant = std::string(name) + (swap ? " swap" : ""),
           .samples = samples,
           .run =
               [=](X x) {
                 if (x[0].size(-1) > (size_of(x[0].dtype()) == 2 ? 64 : 4096))
                   throw std::out_of_range("long sums lose what the margin compares");
                 const auto l1 = [](const Tensor& a, const Tensor& b) { return sum(abs(a - b), -1); };
                 return triplet_margin_with_distance_loss(
                     x[0], x[1], x[2], {.distance = l1, .margin = 0.5, .swap = swap, .reduction = r});
               },
           .reference = reference(1, 0.5, 0),
           .terms = 64,
           .errors = {ERROR_CASE(triplet_margin_with_distance_loss(ones({2, 3}), ones({3}), ones({2, 3})),
                                 "[2,3]", "[3]")}},
          r, {in({0, 3}), in({0, 3}), in({0, 3})});
      add_with_empty(
          {.op = "triplet_margin_with_distance_loss",
           .variant = std::string("default ") + name + (swap ? " swap" : ""),
           .samples = samples,
           .run = RUN(triplet_margin_with_distance_loss(x[0], x[1], x[2], {.swap = swap, .reduction = r})),
           .reference = reference(2, 1, 1e-6),
           .terms = 64},
          r, {in({0, 3}), in({0, 3}), in({0, 3})});
    }
  }
}

const std::vector<double> kWeight = {0.5, 2, 1, 0.25};
Tensor class_weights(const Tensor& x) {
  if (x.device().type == DeviceType::kMeta) return empty({4}, {.dtype = x.dtype(), .device = x.device()});
  return raw::to(raw::to(tensor(kWeight, {4}), x.dtype()), x.device());
}

void add_multi_class() {
  for (const auto& [reduction, name] : kReductions) {
    const Reduction r = reduction;
    for (bool weighted : {false, true}) {
      const std::string variant = std::string(name) + (weighted ? " weighted" : "");
      add_with_empty(
          {.op = "multilabel_soft_margin_loss",
           .variant = variant,
           .samples = {{in({3, 4}), in({3, 4}, 0, 1)}, {in({4}), in({4}, 0, 1)}},
           .run = RUN(multilabel_soft_margin_loss(
               x[0], x[1], {.weight = weighted ? class_weights(x[0]) : Tensor(), .reduction = r})),
           .reference =
               [=](A x) {
                 Array y;
                 y.shape = x[0].shape;
                 y.shape.erase(y.shape.size() - 1);
                 const size_t classes = size_t(x[0].shape.back());
                 y.v.assign(size_t(y.shape.product()), 0.0);
                 for (size_t i = 0; i < x[0].v.size(); ++i) {
                   const double v = x[0].v[i], t = x[1].v[i];
                   y.v[i / classes] -=
                       (weighted ? kWeight[i % 4] : 1) * (t * logsigmoid_of(v) + (1 - t) * logsigmoid_of(-v));
                 }
                 for (double& loss : y.v) loss /= double(classes);  // NaN without classes
                 return reduced(y, r);
               },
           .terms = 48,
           .errors = {ERROR_CASE(multilabel_soft_margin_loss(ones({2, 3}), ones({3})), "[2,3]", "[3]"),
                      ERROR_CASE(
                          multilabel_soft_margin_loss(ones({2, 3}), ones({2, 3}), {.weight = ones({2})}),
                          "[3]", "[2]"),
                      ERROR_CASE(multilabel_soft_margin_loss(ones({2}, {.dtype = DType::kI64}), ones({2})),
                                 "i64[2]"),
                      ERROR_CASE(multilabel_soft_margin_loss(ones({2}),
                                                             empty({2}, {.device = {DeviceType::kMeta, 0}})),
                                 "meta"),
                      ERROR_CASE(multilabel_soft_margin_loss(ones({2}), ones({2}),
                                                             {.reduction = Reduction::kBatchMean}),
                                 "kBatchMean")}},
          r, {in({0, 4}), in({0, 4}, 0, 1)});
      if (!weighted)
        add_with_empty(
            {.op = "multilabel_margin_loss",
             .variant = variant,
             .samples = {{in({3, 4}), indices({3, 4}, {2, 0, -1, 1, 3, 1, 0, 2, -1, 3, 2, 1})},
                         {in({4}), indices({4}, {1, 3, -2, 9})}},
             .run = RUN(multilabel_margin_loss(x[0], x[1], {.reduction = r})),
             .reference =
                 [=](A x) {
                   const size_t classes = size_t(x[0].shape.back());
                   Array y;
                   y.shape = x[0].shape;
                   y.shape.erase(y.shape.size() - 1);
                   y.v.assign(size_t(y.shape.product()), 0.0);
                   for (size_t n = 0; n < y.v.size(); ++n) {
                     const auto at = [&](const Array& a, size_t c) { return a.v[n * classes + c]; };
                     std::vector<bool> is_target(classes, false);
                     size_t count = 0;
                     for (; count < classes && at(x[1], count) >= 0; ++count)
                       is_target.at(size_t(at(x[1], count))) = true;
                     for (size_t t = 0; t < count; ++t)
                       for (size_t c = 0; c < classes; ++c)
                         if (!is_target[c])
                           y.v[n] += std::max(0.0, 1 - at(x[0], size_t(at(x[1], t))) + at(x[0], c)) /
                                     double(classes);
                   }
                   return reduced(y, r);
                 },
             .terms = 48,
             .errors = {ERROR_CASE(multilabel_margin_loss(ones({2, 3}), zeros({2}, {.dtype = DType::kI64})),
                                   "[2,3]", "[2]"),
                        ERROR_CASE(
                            multilabel_margin_loss(ones({2, 0}), zeros({2, 0}, {.dtype = DType::kI64})),
                            "[2,0]"),
                        ERROR_CASE(multilabel_margin_loss(ones({3}), ones({3})), "f32[3]"),
                        ERROR_CASE(multilabel_margin_loss(ones({3}), tensor({3, -1, 0})), "3"),
                        ERROR_CASE(multilabel_margin_loss(ones({3}), tensor({1, -1, 0}),
                                                          {.reduction = Reduction::kBatchMean}),
                                   "kBatchMean")}},
            r, {in({0, 4}), indices({0, 4}, 4)});
      for (int64_t p : {1, 2})
        add_with_empty(
            {.op = "multi_margin_loss",
             .variant = variant + " " + std::to_string(p),
             .samples = {{in({3, 4}), indices({3}, {2, 0, 3})}, {in({4}), indices({}, 1)}},
             .run = RUN(multi_margin_loss(x[0], x[1],
                                          {.p = p,
                                           .margin = 0.75,
                                           .weight = weighted ? class_weights(x[0]) : Tensor(),
                                           .reduction = r})),
             .reference =
                 [=](A x) {
                   Array y(x[1].shape);
                   const size_t classes = size_t(x[0].shape.back());
                   for (size_t n = 0; n < y.v.size(); ++n) {
                     const size_t t = size_t(x[1].v[n]), row = n * classes;
                     for (size_t c = 0; c < classes; ++c)
                       if (c != t)
                         y.v[n] +=
                             std::pow(std::max(0.0, 0.75 - x[0].v[row + t] + x[0].v[row + c]), double(p)) /
                             double(classes);
                     if (weighted) y.v[n] *= kWeight[t];
                   }
                   return reduced(y, r);
                 },
             .terms = 48,
             .errors =
                 {ERROR_CASE(multi_margin_loss(ones({2, 3}), zeros({3}, {.dtype = DType::kI64})), "[2,3]",
                             "[3]"),
                  ERROR_CASE(
                      multi_margin_loss(ones({3}), zeros({}, {.dtype = DType::kI64}), {.weight = ones({2})}),
                      "[3]", "[2]"),
                  ERROR_CASE(multi_margin_loss(ones({3}), zeros({}, {.dtype = DType::kI64}), {.p = 3}), "p",
                             "3"),
                  ERROR_CASE(multi_margin_loss(ones({2, 0}), zeros({2}, {.dtype = DType::kI64})), "[2,0]"),
                  ERROR_CASE(multi_margin_loss(ones({1, 3}), tensor(std::vector<int64_t>{3}, {1})), "3"),
                  ERROR_CASE(multi_margin_loss(ones({1, 3}),
                                               tensor(std::vector{std::numeric_limits<int64_t>::min()}, {1})),
                             "-1"),
                  ERROR_CASE(multi_margin_loss(ones({3}), zeros({})), "f32[]"),
                  ERROR_CASE(
                      multi_margin_loss(ones({3}, {.dtype = DType::kI64}), zeros({}, {.dtype = DType::kI64})),
                      "i64[3]"),
                  ERROR_CASE(multi_margin_loss(ones({3}), empty({}, {.dtype = DType::kI64,
                                                                     .device = {DeviceType::kMeta, 0}})),
                             "meta"),
                  ERROR_CASE(multi_margin_loss(ones({3}), zeros({}, {.dtype = DType::kI64}),
                                               {.reduction = Reduction::kBatchMean}),
                             "kBatchMean")}},
            r, {in({0, 4}), indices({0}, 4)});
    }
  }
}

}  // namespace

static const bool added = [] {
  add_regression();
  add_likelihoods();
  add_variants();
  add_distances();
  add_embeddings();
  add_multi_class();
  return true;
}();

}  // namespace gradus::optest
