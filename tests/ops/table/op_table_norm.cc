// Rows of the op test table for layer, group, instance, local response and RMS norm, and for the dropouts
// whose result is not random (evaluation, p = 0, p = 1). Each row is tested against its f64 reference, its
// gradients against difference quotients; op_table.h explains the fields.
#include <cmath>
#include <limits>
#include <tuple>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

// x[0] in rows of n elements, each normalized by its mean and variance (not `centered`: mean square); times
// x[1] plus x[2], if given.
Array rows_normalized(A x, int64_t n, double eps, bool centered) {
  Array y = x[0];
  for (size_t r = 0; r < y.v.size(); r += size_t(n)) {
    // In long double: for equal elements the mean's rounding error is divided by sqrt(eps) alone.
    long double mean = 0, square = 0;
    for (size_t i = r; centered && i < r + size_t(n); ++i) mean += y.v[i];
    mean /= double(n);
    for (size_t i = r; i < r + size_t(n); ++i) square += (y.v[i] - mean) * (y.v[i] - mean) / double(n);
    for (size_t i = r; i < r + size_t(n); ++i) {
      y.v[i] = double((y.v[i] - mean) / std::sqrt(square + eps));
      if (x.size() > 1) y.v[i] *= x[1].v[i - r];
      if (x.size() > 2) y.v[i] += x[2].v[i - r];
    }
  }
  return y;
}

// The channels of a group are contiguous; weight x[1] and bias x[2] are per channel.
Array groups_normalized(A x, int64_t groups, double eps) {
  Array plain = x[0];
  const int64_t C = x[0].shape[1];
  if (plain.v.empty()) return plain;
  Array y = rows_normalized({plain}, int64_t(plain.v.size()) / (plain.shape[0] * groups), eps, true);
  const size_t area = plain.v.size() / size_t(plain.shape[0] * C);
  for (size_t i = 0; i < y.v.size(); ++i) {
    if (x.size() > 1) y.v[i] *= x[1].v[i / area % size_t(C)];
    if (x.size() > 2) y.v[i] += x[2].v[i / area % size_t(C)];
  }
  return y;
}

// y[c] = sum of x[j]^power over channels j in [c - before, c + after].
Array window_sums(const Array& x, int64_t before, int64_t after, double power) {
  Array y(x.shape);
  const int64_t C = x.shape[1];
  if (x.v.empty()) return y;
  const int64_t area = int64_t(x.v.size()) / (x.shape[0] * C);
  for (int64_t i = 0; i < int64_t(x.v.size()); ++i) {
    const int64_t c = i / area % C;
    for (int64_t j = std::max<int64_t>(0, c - before); j <= std::min(C - 1, c + after); ++j)
      y.v[size_t(i)] += std::pow(x.v[size_t(i + (j - c) * area)], power);
  }
  return y;
}

// A vector with the dtype and device of `like`.
Tensor constant(const Tensor& like, const std::vector<double>& v) {
  const Shape shape{int64_t(v.size())};
  if (like.device().type == DeviceType::kMeta)
    return empty(shape, {.dtype = like.dtype(), .device = like.device()});
  return raw::to(raw::to(tensor(v, shape), like.dtype()), like.device());
}

const std::vector<DType> kFloats = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

void add_layer_norm() {
  const std::vector<ErrorCase> errors = {
      ERROR_CASE(layer_norm(empty({2, 3}), {4}), "[2,3]", "[4]"),
      ERROR_CASE(layer_norm(empty({3}), {2, 3}), "[3]", "[2,3]"),
      ERROR_CASE(layer_norm(empty({3}), {}), "[3]"),
      ERROR_CASE(layer_norm(empty({2, 3}), {3}, empty({2})), "weight", "[2]"),
      ERROR_CASE(layer_norm(empty({2, 3}), {3}, {}, empty({1, 3})), "bias", "[1,3]"),
      ERROR_CASE(layer_norm(empty({2, 3}), {3}, {}, {}, -1), "eps", "-1"),
      ERROR_CASE(layer_norm(empty({2, 3}, {.dtype = DType::kI64}), {3}), "i64[2,3]"),
      ERROR_CASE(layer_norm(empty({2, 3}), {3}, empty({3}, {.dtype = DType::kF64})), "f64", "f32"),
      ERROR_CASE(layer_norm(empty({2, 3}), {3}, empty({3}, {.device = {DeviceType::kMeta, 0}})), "meta",
                 "cpu"),
  };
  for (const auto& [name, shape, last] : {std::tuple<const char*, Shape, Shape>{"", {3, 4}, {4}},
                                          {"two dims", {2, 3, 4}, {3, 4}},
                                          {"images", {2, 3, 4, 2}, {2}},
                                          {"all of an image", {2, 3, 4, 5}, {3, 4, 5}},
                                          {"the whole", {7}, {7}},
                                          {"one row", {1, 5}, {5}},
                                          {"empty", {0, 4}, {4}},
                                          {"rows of nothing", {2, 0}, {0}},
                                          {"one element", {3, 1}, {1}},
                                          {"long rows", {3, 1050}, {1050}},
                                          {"many rows", {700, 100}, {100}}}) {
    const int64_t n = last.product();
    const bool large = shape.product() > 5000;
    add_row({.op = "layer_norm",
             .variant = name,
             .samples = {{in(shape), in(last), in(last)}},
             .run = [last = last](X x) { return layer_norm(x[0], last, x[1], x[2], 0.01); },
             .reference = [n](A x) { return rows_normalized(x, n, 0.01, true); },
             .terms = 32,
             .second_order = !large,
             .dtypes = kFloats,
             .errors = errors});
    add_row(
        {.op = "rms_norm",
         .variant = name,
         .samples = {{in(shape), in(last)}},
         .run = [last = last](X x) { return rms_norm(x[0], last, x[1], 0.01); },
         .reference = [n](A x) { return rows_normalized(x, n, 0.01, false); },
         .terms = 32,
         .second_order = !large,
         .dtypes = kFloats,
         .errors = {ERROR_CASE(rms_norm(empty({2, 3}), {4}), "[2,3]", "[4]"),
                    ERROR_CASE(rms_norm(empty({2, 3}), {3}, empty({2})), "weight", "[2]"),
                    ERROR_CASE(rms_norm(empty({2, 3}), {3}, {}, -1), "eps", "-1"),
                    ERROR_CASE(rms_norm(empty({2, 3}, {.dtype = DType::kI64}), {3}), "i64[2,3]"),
                    ERROR_CASE(rms_norm(empty({3}), {3}, empty({3}, {.dtype = DType::kF64})), "f64", "f32"),
                    ERROR_CASE(rms_norm(empty({3}), {3}, empty({3}, {.device = {DeviceType::kMeta, 0}})),
                               "meta", "cpu")}});
  }
  add_row({.op = "layer_norm",
           .variant = "without weight",
           .samples = {{in({3, 5})}},
           .run = RUN(layer_norm(x[0], {5})),
           .reference = [](A x) { return rows_normalized(x, 5, 1e-5, true); },
           .terms = 32});
  add_row({.op = "layer_norm",
           .variant = "a large mean",
           .samples = {{in({3, 600}, 999, 1001)}},
           .run = RUN(layer_norm(x[0], {600})),
           .reference = [](A x) { return rows_normalized(x, 600, 1e-5, true); },
           .terms = 32,
           .differentiable = false,
           .dtypes = {DType::kF32}});
  add_row(
      {.op = "rms_norm",
       .variant = "default eps",
       .samples = {{in({3, 5})}},
       .run = RUN(rms_norm(x[0], {5})),
       .reference = [](A x) { return rows_normalized(x, 5, std::numeric_limits<float>::epsilon(), false); },
       .differentiable = false,
       .dtypes = {DType::kF32}});
}

void add_group_norm() {
  const std::vector<ErrorCase> errors = {
      ERROR_CASE(group_norm(empty({2, 6, 3}), 4), "4", "[2,6,3]"),
      ERROR_CASE(group_norm(empty({2, 6, 3}), 0), "0"),
      ERROR_CASE(group_norm(empty({6}), 2), "[6]"),
      ERROR_CASE(group_norm(empty({2, 6}), 2, empty({2})), "weight", "[2]"),
      ERROR_CASE(group_norm(empty({2, 6}), 2, {}, empty({2})), "bias", "[2]"),
      ERROR_CASE(group_norm(empty({2, 6}), 2, {}, {}, -1), "eps", "-1"),
      ERROR_CASE(group_norm(empty({2, 6}, {.dtype = DType::kI64}), 2), "i64[2,6]"),
      ERROR_CASE(group_norm(empty({2, 3}), 3, empty({3}, {.dtype = DType::kF64})), "f64", "f32"),
      ERROR_CASE(group_norm(empty({2, 3}), 3, empty({3}, {.device = {DeviceType::kMeta, 0}})), "meta", "cpu"),
  };
  for (const auto& [name, shape, groups] : {std::tuple<const char*, Shape, int64_t>{"", {2, 6, 3, 2}, 3},
                                            {"of samples", {3, 6}, 2},
                                            {"of sequences", {2, 4, 5}, 2},
                                            {"of volumes", {2, 4, 2, 3, 2}, 2},
                                            {"one group", {2, 4, 3, 3}, 1},
                                            {"a group per channel", {2, 3, 3, 2}, 3},
                                            {"one sample", {1, 4, 3, 3}, 2},
                                            {"empty", {0, 4, 3, 3}, 2},
                                            {"no positions", {2, 4, 0, 3}, 2},
                                            {"one element", {2, 2, 1}, 2},
                                            {"large", {2, 24, 61, 60}, 4}}) {
    const bool large = shape.product() > 5000;
    add_row({.op = "group_norm",
             .variant = name,
             .samples = {{in(shape), in({shape[1]}), in({shape[1]})}},
             .run = [groups = groups](X x) { return group_norm(x[0], groups, x[1], x[2], 0.01); },
             .reference = [groups = groups](A x) { return groups_normalized(x, groups, 0.01); },
             .terms = large ? 64.0 : 32.0,
             .differentiable = !large,
             .dtypes = kFloats,
             .errors = errors});
  }
  add_row({.op = "group_norm",
           .variant = "without weight",
           .samples = {{in({2, 4, 3})}},
           .run = RUN(group_norm(x[0], 2)),
           .reference = [](A x) { return groups_normalized(x, 2, 1e-5); },
           .terms = 32});
}

void add_instance_norm() {
  const auto of = [](const Shape& s) { return empty(s); };
  const std::vector<ErrorCase> errors = {
      ERROR_CASE(instance_norm(of({2, 3})), "[2,3]"),
      ERROR_CASE(instance_norm(of({2, 3, 1})), "[2,3,1]"),
      ERROR_CASE(instance_norm(of({2, 3, 4}), {}, {}, of({2})), "weight", "[2]"),
      ERROR_CASE(instance_norm(of({2, 3, 4}), of({2}), of({3})), "running_mean", "[2]"),
      ERROR_CASE(instance_norm(of({2, 3, 4}), of({3})), "running_mean", "running_var"),
      ERROR_CASE(instance_norm(of({2, 3, 4}), {}, {}, {}, {}, {.use_input_stats = false}), "use_input_stats"),
      ERROR_CASE(instance_norm(of({2, 3, 4}), {}, {}, {}, {}, {.eps = -1}), "eps", "-1"),
      ERROR_CASE(instance_norm(empty({2, 3, 4}, {.dtype = DType::kI64})), "i64[2,3,4]"),
      ERROR_CASE(instance_norm(of({2, 3, 4}), {}, {}, empty({3}, {.dtype = DType::kF64})), "f64", "f32"),
      ERROR_CASE(instance_norm(of({2, 3, 4}), {}, {}, empty({3}, {.device = {DeviceType::kMeta, 0}})), "meta",
                 "cpu"),
  };
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{2, 3, 4, 3}, Shape{1, 3, 2, 2, 3}, Shape{0, 3, 4}}) {
    add_row({.op = "instance_norm",
             .variant = concat(shape),
             .samples = {{in(shape), in({3}), in({3})}},
             .run = RUN(instance_norm(x[0], {}, {}, x[1], x[2], {.eps = 0.01})),
             .reference = [](A x) { return groups_normalized(x, x[0].shape[1], 0.01); },
             .terms = 32,
             .dtypes = kFloats,
             .errors = errors});
    add_row({.op = "instance_norm",
             .variant = concat("by running statistics ", shape),
             .samples = {{in(shape), in({3}), in({3})}},
             .run = RUN(instance_norm(x[0], constant(x[0], {0.25, -0.5, 0}), constant(x[0], {0.5, 1, 2}),
                                      x[1], x[2], {.use_input_stats = false, .eps = 0.25})),
             .reference =
                 [](A x) {
                   Array y = x[0];
                   const double mean[] = {0.25, -0.5, 0}, var[] = {0.5, 1, 2};
                   const size_t area = y.v.empty() ? 1 : y.v.size() / size_t(y.shape[0] * 3);
                   for (size_t i = 0; i < y.v.size(); ++i) {
                     const size_t c = i / area % 3;
                     y.v[i] = (y.v[i] - mean[c]) / std::sqrt(var[c] + 0.25) * x[1].v[c] + x[2].v[c];
                   }
                   return y;
                 },
             .terms = 16,
             .dtypes = kFloats});
  }
}

void add_channel_windows() {
  for (int64_t size : {1, 2, 3, 9}) {
    add_row(
        {.op = "local_response_norm",
         .variant = std::to_string(size),
         .samples =
             {{in({2, 5, 3})}, {in({2, 4, 2, 3})}, {in({1, 3, 2, 1, 2})}, {in({0, 3, 2})}, {in({1, 1, 1})}},
         .run = RUN(local_response_norm(x[0], size, {.alpha = 0.5, .beta = 0.6, .k = 1.5})),
         .reference =
             [=](A x) {
               Array y = window_sums(x[0], size / 2, (size - 1) / 2, 2);
               for (size_t i = 0; i < y.v.size(); ++i)
                 y.v[i] = x[0].v[i] / std::pow(1.5 + 0.5 / double(size) * y.v[i], 0.6);
               return y;
             },
         .terms = 16,
         .dtypes = kFloats,
         .errors = {
             ERROR_CASE(local_response_norm(empty({2, 3}), 3), "[2,3]"),
             ERROR_CASE(local_response_norm(empty({2, 3, 4}), 0), "0"),
             ERROR_CASE(local_response_norm(empty({2, 3, 4}, {.dtype = DType::kI64}), 3), "i64[2,3,4]")}});
    add_row(
        {.op = "channel_window_sum",
         .variant = std::to_string(size),
         .samples = {{in({2, 5})}, {in({2, 5, 3})}, {in({2, 4, 2, 3})}, {in({0, 3, 2})}, {in({1, 1, 1})}},
         .run = RUN(channel_window_sum(x[0], {.before = size, .after = size / 2})),
         .reference = [=](A x) { return window_sums(x[0], size, size / 2, 1); },
         .terms = 16,
         .dtypes = kFloats,
         .errors = {ERROR_CASE(channel_window_sum(empty({2}), {}), "[2]"),
                    ERROR_CASE(channel_window_sum(empty({2, 3}), {.before = -1}), "-1"),
                    ERROR_CASE(channel_window_sum(empty({2, 3}, {.dtype = DType::kI64}), {}), "i64[2,3]")}});
  }
}

void add_dropout() {
  struct Form {
    const char* op;
    Tensor (*run)(const Tensor&, double, bool);
    Shape shape;
    bool of_channels;
  };
  const Form forms[] = {{"dropout1d", &dropout1d, {2, 3, 4}, true},
                        {"dropout2d", &dropout2d, {2, 3, 4, 2}, true},
                        {"dropout3d", &dropout3d, {2, 3, 4, 2, 2}, true},
                        {"alpha_dropout", &alpha_dropout, {2, 3, 4}, false},
                        {"feature_alpha_dropout", &feature_alpha_dropout, {2, 3, 4}, true}};
  for (const Form& f : forms) {
    std::vector<ErrorCase> errors = {
        ERROR_CASE(f.run(empty(f.shape), 1.5, true), "1.5"),
        ERROR_CASE(f.run(empty(f.shape, {.dtype = DType::kI64}), 0.5, true), "i64")};
    if (f.of_channels) errors.push_back(ERROR_CASE(f.run(empty({7}), 0.5, true), "[7]"));
    Shape empty_batch = f.shape;
    empty_batch[0] = 0;
    // dropout_test.cc tests the random masks.
    add_row({.op = f.op,
             .variant = "in evaluation",
             .samples = {{in(f.shape)}, {in(empty_batch)}},
             .run = RUN(f.run(x[0], 0.5, false)),
             .reference = [](A x) { return x[0]; },
             .dtypes = kFloats,
             .errors = errors});
    add_row({.op = f.op,
             .variant = "of everything",
             .samples = {{in(f.shape)}, {in(empty_batch)}},
             .run = RUN(f.run(x[0], 1, true)),
             .reference = [](A x) { return Array(x[0].shape); },
             .dtypes = kFloats});
    add_row({.op = f.op,
             .variant = "of nothing",
             .samples = {{in(f.shape)}},
             .run = RUN(f.run(x[0], 0, true)),
             .reference = [](A x) { return x[0]; },
             .dtypes = kFloats});
  }
}

}  // namespace

static const bool added = [] {
  add_layer_norm();
  add_group_norm();
  add_instance_norm();
  add_channel_windows();
  add_dropout();
  return true;
}();

}  // namespace gradus::optest
