// Rows of the op test table for batch norm: whole, fused with ReLU, and in the two parts that ranks need for
// a common batch: statistics of the local batch, normalization by given ones. Each row is tested against its
// f64 reference, its gradients against difference quotients; op_table.h explains the fields.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

// A constant with the dtype and device of x.
Tensor constant(const Tensor& x, const std::vector<double>& values) {
  const Shape shape{int64_t(values.size())};
  if (x.device().type == DeviceType::kMeta) return empty(shape, {.dtype = x.dtype(), .device = x.device()});
  return raw::to(raw::to(tensor(values, shape), x.dtype()), x.device());
}

// The offsets of each channel's elements.
std::vector<std::vector<size_t>> places_of_channels(const Array& x) {
  const int64_t channels = x.shape[1];
  int64_t area = 1;
  for (int d = 2; d < x.dim(); ++d) area *= x.shape[d];
  std::vector<std::vector<size_t>> places(static_cast<size_t>(channels));
  for (size_t i = 0; i < x.v.size(); ++i) places[i / size_t(area) % size_t(channels)].push_back(i);
  return places;
}

// The results of batch_statistics (x, means, sums of squared deviations) are compared as one vector.
void add_joined_batch_norm() {
  for (const Shape& s : {Shape{4, 3}, Shape{2, 3, 5}, Shape{2, 3, 2, 2}}) {
    const std::string variant = concat(s);
    add_row({.op = "batch_statistics",
             .variant = variant,
             .samples = {{in(s)}},
             .run =
                 [](X x) {
                   const BatchStatistics b = batch_statistics(x[0]);
                   const DType dtype = x[0].dtype();
                   return cat({reshape(b.x, {-1}), to(b.mean, dtype), to(b.m2, dtype)}, 0);
                 },
             .reference =
                 [](A x) {
                   Array y = x[0];
                   std::vector<double> means, squares;
                   for (const auto& places : places_of_channels(x[0])) {
                     long double mean = 0, square = 0;
                     for (size_t i : places) mean += x[0].v[i];
                     mean /= double(places.size());
                     for (size_t i : places) square += (x[0].v[i] - mean) * (x[0].v[i] - mean);
                     means.push_back(double(mean)), squares.push_back(double(square));
                   }
                   y.v.insert(y.v.end(), means.begin(), means.end());
                   y.v.insert(y.v.end(), squares.begin(), squares.end());
                   y.shape = {int64_t(y.v.size())};
                   return y;
                 },
             .terms = 32,
             .errors = {ERROR_CASE(batch_statistics(empty({3})), "[3]")}});
    add_row({.op = "batch_norm_by",
             .variant = variant,
             .samples = {{in(s), in({3}), in({3}, 0.5, 1.5), in({3}), in({3})}},
             .run = RUN(batch_norm_by(x[0], x[1], x[2], x[3], x[4], 0.01)),
             .reference =
                 [](A x) {
                   Array y = x[0];
                   size_t c = 0;
                   for (const auto& places : places_of_channels(x[0])) {
                     for (size_t i : places)
                       y.v[i] = (x[0].v[i] - x[1].v[c]) / std::sqrt(x[2].v[c] + 0.01) * x[3].v[c] + x[4].v[c];
                     ++c;
                   }
                   return y;
                 },
             .terms = 32,
             .errors = {
                 ERROR_CASE(batch_norm_by(empty({2, 3}), empty({4}), empty({3}), {}, {}, 0), "[2,3]", "[4]"),
                 ERROR_CASE(batch_norm_by(empty({2, 3}), empty({3}), empty({3}), {}, {}, -1), "eps", "-1")}});
  }
}

void add_batch_norm() {
  // x[0], normalized by its own mean and variance (training) or the given ones; then * x[1] + x[2], if
  // present.
  const auto normalized = [](A x, bool training, const std::vector<double>& mean,
                             const std::vector<double>& var, double eps) {
    const Array& v = x[0];
    const int64_t channels = v.shape[1];
    int64_t area = 1;
    for (int d = 2; d < v.dim(); ++d) area *= v.shape[d];
    Array y = v;
    for (int64_t c = 0; c < channels; ++c) {
      std::vector<size_t> at;
      for (int64_t n = 0; n < v.shape[0]; ++n)
        for (int64_t i = 0; i < area; ++i) at.push_back(size_t((n * channels + c) * area + i));
      // In long double: for equal elements the mean's rounding error is divided by sqrt(eps) alone.
      long double m = 0, s = 0;
      for (size_t i : at) m += v.v[i];
      m /= double(at.size());
      for (size_t i : at) s += (v.v[i] - m) * (v.v[i] - m) / double(at.size());
      if (!training) m = mean[size_t(c)], s = var[size_t(c)];
      for (size_t i : at) {
        y.v[i] = double((v.v[i] - m) / std::sqrt(s + eps));
        if (x.size() > 1) y.v[i] = y.v[i] * x[1].v[size_t(c)] + x[2].v[size_t(c)];
      }
    }
    return y;
  };
  const std::vector<double> mean = {0.3, -0.2, 0.1}, var = {0.8, 1.7, 0.4};
  for (const Shape& s : {Shape{5, 3}, Shape{4, 3, 5}, Shape{2, 3, 3, 2}, Shape{6, 3, 21, 20}}) {
    for (bool training : {true, false}) {
      const std::string variant = concat(training ? "train " : "eval ", s);
      const auto run = [=](const Tensor& x, const Tensor& w, const Tensor& b) {
        return training ? batch_norm(x, w, b, {}, {}, {.training = true, .eps = 0.01})
                        : batch_norm(x, w, b, constant(x, mean), constant(x, var),
                                     {.training = false, .eps = 0.01});
      };
      const auto reference = [=](A x) { return normalized(x, training, mean, var, 0.01); };
      add_row({.op = "batch_norm",
               .variant = variant,
               .samples = {{in(s), in({3}), in({3})}},
               .run = [run](X x) { return run(x[0], x[1], x[2]); },
               .reference = reference,
               .terms = 32,
               .errors = {
                   ERROR_CASE(batch_norm(empty({2, 3}), empty({4}), empty({4}), {}, {}, {.training = true}),
                              "[2,3]", "[4]"),
                   ERROR_CASE(batch_norm(empty({1, 3}), {}, {}, {}, {}, {.training = true}), "[1,3]"),
                   ERROR_CASE(batch_norm(empty({2, 3}), {}, {}, {}, {}, {.training = false}), "running")}});
      add_row({.op = "batch_norm",
               .variant = variant + " without weight",
               .samples = {{in(s)}},
               .run = [run](X x) { return run(x[0], {}, {}); },
               .reference = reference,
               .terms = 32});
    }
  }

  // Batch norm, plus x[3] where there is one, then ReLU (slope 0) or leaky ReLU.
  const auto rectified = [=](A x, bool training, double slope) {
    Array y = normalized(x, training, mean, var, 0.01);
    for (size_t i = 0; i < y.v.size(); ++i) {
      y.v[i] += x.size() > 3 ? x[3].v[i] : 0;
      if (y.v[i] < 0) y.v[i] *= slope;
    }
    return y;
  };
  for (const Shape& s : {Shape{5, 3}, Shape{4, 3, 5}, Shape{2, 3, 3, 2}})
    for (bool training : {true, false}) {
      const std::string variant = concat(training ? "train " : "eval ", s);
      const auto stored = [=](const Tensor& x, const std::vector<double>& v) {
        return training ? Tensor() : constant(x, v);
      };
      const BatchNormFuncOptions options{.training = training, .eps = 0.01};
      const auto reference = [=](A x) { return rectified(x, training, 0); };
      add_row(
          {.op = "batch_norm_relu",
           .variant = variant,
           .samples = {{distinct(s), in({3}, 0.5, 1.5), in({3})}},
           .run = RUN(batch_norm_relu(x[0], x[1], x[2], stored(x[0], mean), stored(x[0], var), options)),
           .reference = reference,
           .terms = 32,
           .errors = {ERROR_CASE(batch_norm_relu(empty({2, 3}), empty({4}), {}, {}, {}, {.training = true}),
                                 "[batch_norm_relu]", "[2,3]", "[4]"),
                      ERROR_CASE(batch_norm_relu(empty({2, 3}), {}, {}, {}, {}), "running")}});
      for (const double slope : {0.2, -0.5})
        add_row(
            {.op = "batch_norm_leaky_relu",
             .variant = concat(variant, " slope ", slope),
             .samples = {{distinct(s), in({3}, 0.5, 1.5), in({3})}},
             .run = RUN(batch_norm_leaky_relu(x[0], slope, x[1], x[2], stored(x[0], mean), stored(x[0], var),
                                              options)),
             .reference = [=](A x) { return rectified(x, training, slope); },
             .terms = 32,
             .errors = {ERROR_CASE(batch_norm_leaky_relu(empty({2, 3}), 0.2, empty({4}), {}, {}, {},
                                                         {.training = true}),
                                   "[batch_norm_leaky_relu]", "[2,3]", "[4]"),
                        ERROR_CASE(batch_norm_leaky_relu(empty({2, 3}), 0.2, {}, {}, {}, {}), "running")}});
      add_row({.op = "batch_norm_add_relu",
               .variant = variant,
               .samples = {{distinct(s), in({3}, 0.5, 1.5), in({3}), distinct(s)}},
               .run = RUN(batch_norm_add_relu(x[0], x[3], x[1], x[2], stored(x[0], mean), stored(x[0], var),
                                              options)),
               .reference = reference,
               .terms = 32,
               .errors = {{"weight",
                           [] {
                             const Tensor x = empty({2, 3});
                             batch_norm_add_relu(x, x, empty({4}), {}, {}, {}, {.training = true});
                           },
                           {"[batch_norm_add_relu]", "[2,3]", "[4]"}},
                          ERROR_CASE(batch_norm_add_relu(empty({2, 3}), empty({2, 4}), {}, {}, {}, {},
                                                         {.training = true}),
                                     "[2,3]", "[2,4]"),
                          {"one value per channel",
                           [] {
                             const Tensor x = empty({1, 3});
                             batch_norm_add_relu(x, x, {}, {}, {}, {}, {.training = true});
                           },
                           {"[1,3]"}}}});
    }
}

}  // namespace

static const bool added = [] {
  add_batch_norm();
  add_joined_batch_norm();
  return true;
}();

}  // namespace gradus::optest
