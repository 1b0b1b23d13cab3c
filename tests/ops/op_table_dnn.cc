// Rows of pooling and normalisation.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/op_table.h"

namespace gradus::optest {
namespace {

struct Window {
  int64_t first, last;  // cells of the image, before clipping: [first, last)
  int64_t step;
};

int64_t pooled_size(int64_t n, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                    bool ceil_mode) {
  const int64_t span = n + 2 * padding - dilation * (kernel - 1) - 1;
  int64_t out = (ceil_mode ? (span + stride - 1) / stride : span / stride) + 1;
  if (ceil_mode && (out - 1) * stride >= n + padding) --out;  // the last window starts in the padding
  return out;
}

// y[n,c,p,q] = f(values inside of the window, cells of the window with the padding in it)
Array pool(const Array& x, Size2 out, const std::function<Window(int64_t)>& rows,
           const std::function<Window(int64_t)>& columns, Size2 padding,
           const std::function<double(const std::vector<double>&, int64_t)>& f) {
  Array y({x.shape[0], x.shape[1], out.h, out.w});
  for (int64_t n = 0; n < x.shape[0]; ++n)
    for (int64_t c = 0; c < x.shape[1]; ++c)
      for (int64_t p = 0; p < out.h; ++p)
        for (int64_t q = 0; q < out.w; ++q) {
          const Window r = rows(p), s = columns(q);
          std::vector<double> values;
          int64_t cells = 0;
          for (int64_t h = r.first; h < r.last; h += r.step)
            for (int64_t w = s.first; w < s.last; w += s.step) {
              // Cells beyond the padding do not count.
              if (h < x.shape[2] + padding.h && w < x.shape[3] + padding.w) ++cells;
              if (h >= 0 && w >= 0 && h < x.shape[2] && w < x.shape[3]) values.push_back(x.at({n, c, h, w}));
            }
          y.at({n, c, p, q}) = f(values, cells);
        }
  return y;
}

double max_of(const std::vector<double>& v, int64_t) { return *std::max_element(v.begin(), v.end()); }

void add_pooling() {
  struct Pool {
    const char* name;
    Shape x;
    Size2 kernel, stride, padding = 0, dilation = 1;
    bool ceil_mode = false, include_pad = true;
  };
  const Pool cases[] = {
      {"", {2, 3, 4, 6}, 2, 2},
      {"overlapping", {1, 2, 6, 5}, 3, 2, 1},
      {"leaves a rest", {1, 2, 5, 5}, 2, 2},
      {"ceil", {1, 2, 5, 5}, 2, 2, 0, 1, true},
      {"ceil with padding", {1, 2, 6, 5}, 3, 2, 1, 1, true},
      {"exclude padding", {1, 2, 6, 5}, 3, 2, 1, 1, false, false},
      {"uneven", {1, 2, 6, 7}, {2, 3}, {1, 2}, {1, 0}},
      {"steps over cells", {1, 2, 6, 6}, 1, 2},
      {"large", {2, 19, 24, 24}, 2, 2},
      {"large overlapping", {2, 19, 17, 15}, 3, 2, 1},
  };
  for (const Pool& c : cases) {
    const Size2 out(pooled_size(c.x[2], c.kernel.h, c.stride.h, c.padding.h, 1, c.ceil_mode),
                    pooled_size(c.x[3], c.kernel.w, c.stride.w, c.padding.w, 1, c.ceil_mode));
    const auto rows = [c](int64_t p) {
      return Window{p * c.stride.h - c.padding.h, p * c.stride.h - c.padding.h + c.kernel.h, 1};
    };
    const auto columns = [c](int64_t q) {
      return Window{q * c.stride.w - c.padding.w, q * c.stride.w - c.padding.w + c.kernel.w, 1};
    };
    if (c.include_pad) {
      add_row({.op = "max_pool2d",
               .variant = c.name,
               .samples = {{distinct(c.x)}},
               .run =
                   [c](X x) {
                     return max_pool2d(x[0], {.kernel = c.kernel,
                                              .stride = c.stride,
                                              .padding = c.padding,
                                              .ceil_mode = c.ceil_mode});
                   },
               .reference = [=](A x) { return pool(x[0], out, rows, columns, c.padding, max_of); },
               .errors = {{"larger than the image",
                           [] {
                             max_pool2d(empty({1, 1, 2, 2}), {.kernel = Size2(3)});
                           },
                           {"[1,1,2,2]"}},
                          {"dims",
                           [] {
                             max_pool2d(empty({2, 2}), {.kernel = Size2(2)});
                           },
                           {"[2,2]"}},
                          {"padding",
                           [] {
                             max_pool2d(empty({1, 1, 4, 4}), {.kernel = Size2(2), .padding = 2});
                           },
                           {"padding"}}}});
    }
    add_row({.op = "avg_pool2d",
             .variant = c.name,
             .samples = {{in(c.x)}},
             .run =
                 [c](X x) {
                   return avg_pool2d(x[0], {.kernel = c.kernel,
                                            .stride = c.stride,
                                            .padding = c.padding,
                                            .ceil_mode = c.ceil_mode,
                                            .count_include_pad = c.include_pad});
                 },
             .reference =
                 [=](A x) {
                   return pool(x[0], out, rows, columns, c.padding,
                               [c](const std::vector<double>& v, int64_t cells) {
                                 double s = 0;
                                 for (double e : v) s += e;
                                 return s / double(c.include_pad ? cells : int64_t(v.size()));
                               });
                 },
             .terms = 9,
             .errors = {{"larger than the image",
                         [] {
                           avg_pool2d(empty({1, 1, 2, 2}), {.kernel = Size2(3)});
                         },
                         {"[1,1,2,2]"}}}});
  }
  add_row({.op = "max_pool2d",
           .variant = "dilation",
           .samples = {{distinct({1, 2, 5, 6})}},
           .run = [](X x) { return max_pool2d(x[0], {.kernel = Size2(2), .stride = 1, .dilation = 2}); },
           .reference =
               [](A x) {
                 const auto w = [](int64_t p) { return Window{p, p + 3, 2}; };
                 return pool(x[0], {3, 4}, w, w, 0, max_of);
               }});
  for (const auto& [s, out] : {std::pair<Shape, Size2>{{2, 3, 4, 5}, 1},
                               {{1, 2, 7, 5}, {3, 4}},
                               {{1, 2, 4, 4}, 2},
                               {{1, 2, 3, 3}, {3, 5}}}) {
    const auto cut = [](int64_t n, int64_t parts) {
      return [=](int64_t p) { return Window{p * n / parts, ((p + 1) * n + parts - 1) / parts, 1}; };
    };
    const auto rows = cut(s[2], out.h), columns = cut(s[3], out.w);
    const Size2 o = out;
    add_row({.op = "adaptive_avg_pool2d",
             .variant = concat(out),
             .samples = {{in(s)}},
             .run = [o](X x) { return adaptive_avg_pool2d(x[0], o); },
             .reference =
                 [=](A x) {
                   return pool(x[0], o, rows, columns, 0, [](const std::vector<double>& v, int64_t) {
                     double sum = 0;
                     for (double e : v) sum += e;
                     return sum / double(v.size());
                   });
                 },
             .terms = 20,
             .errors = {{"dims",
                         [] {
                           adaptive_avg_pool2d(empty({2, 2}), 1);
                         },
                         {"[2,2]"}}}});
    add_row({.op = "adaptive_max_pool2d",
             .variant = concat(out),
             .samples = {{distinct(s)}},
             .run = [o](X x) { return adaptive_max_pool2d(x[0], o); },
             .reference = [=](A x) { return pool(x[0], o, rows, columns, 0, max_of); }});
  }
}

// The ops that pooling's derivatives are made of, on 2x2 windows: overlapping ones (stride 1) and disjoint
// ones.
void add_pooling_gradients() {
  for (int64_t stride : {1, 2}) {
    const Shape image{1, 2, 4, 4};
    const int64_t n = stride == 1 ? 3 : 2;
    const Shape out{1, 2, n, n};
    const auto max_windows = [=] {
      return raw::max_pool2d_windows(empty(image), {.kernel = Size2(2), .stride = stride});
    };
    const auto avg_windows = [=] {
      return raw::avg_pool2d_windows(empty(image), {.kernel = Size2(2), .stride = stride});
    };
    Input index = {
        .shape = out, .fill = Fill::kInteger, .lo = 0, .hi = 4, .fixed = true, .dtype = DType::kU8};
    const auto for_each =
        [=](const std::function<void(std::initializer_list<int64_t>, int64_t, int64_t)>& f) {
          for (int64_t c = 0; c < 2; ++c)
            for (int64_t p = 0; p < n; ++p)
              for (int64_t q = 0; q < n; ++q) f({0, c, p, q}, p * stride, q * stride);
        };
    const std::string variant = "stride " + std::to_string(stride);
    add_row(
        {.op = "max_pool2d_scatter",
         .variant = variant,
         .samples = {{in(out), index}},
         .run =
             [=](X x) { return gradus::max_pool2d_scatter(x[0], raw::channels_last(x[1]), max_windows()); },
         .reference =
             [=](A x) {
               Array y(image);
               for_each([&](std::initializer_list<int64_t> at, int64_t h, int64_t w) {
                 const int64_t k = int64_t(x[1].at(at));
                 y.at({0, *(at.begin() + 1), h + k / 2, w + k % 2}) += x[0].at(at);
               });
               return y;
             },
         .layouts = false});
    add_row(
        {.op = "max_pool2d_gather",
         .variant = variant,
         .samples = {{in(image), index}},
         .run = [=](X x) { return gradus::max_pool2d_gather(x[0], raw::channels_last(x[1]), max_windows()); },
         .reference =
             [=](A x) {
               Array y(out);
               for_each([&](std::initializer_list<int64_t> at, int64_t h, int64_t w) {
                 const int64_t k = int64_t(x[1].at(at));
                 y.at(at) = x[0].at({0, *(at.begin() + 1), h + k / 2, w + k % 2});
               });
               return y;
             },
         .layouts = false});
    add_row({.op = "avg_pool2d_spread",
             .variant = variant,
             .samples = {{in(out)}},
             .run = [=](X x) { return gradus::avg_pool2d_spread(x[0], avg_windows()); },
             .reference =
                 [=](A x) {
                   Array y(image);
                   for_each([&](std::initializer_list<int64_t> at, int64_t h, int64_t w) {
                     for (int64_t k = 0; k < 4; ++k)
                       y.at({0, *(at.begin() + 1), h + k / 2, w + k % 2}) += x[0].at(at) / 4;
                   });
                   return y;
                 },
             .layouts = false});
  }
}

// A constant with the dtype and device of x.
Tensor constant(const Tensor& x, const std::vector<double>& values) {
  const Shape shape{int64_t(values.size())};
  if (x.device().type == DeviceType::kMeta) return empty(shape, {.dtype = x.dtype(), .device = x.device()});
  return raw::to(raw::to(tensor(values, shape), x.dtype()), x.device());
}

// Where each channel's elements are.
std::vector<std::vector<size_t>> places_of_channels(const Array& x) {
  const int64_t channels = x.shape[1];
  int64_t area = 1;
  for (int d = 2; d < x.dim(); ++d) area *= x.shape[d];
  std::vector<std::vector<size_t>> places(static_cast<size_t>(channels));
  for (size_t i = 0; i < x.v.size(); ++i) places[i / size_t(area) % size_t(channels)].push_back(i);
  return places;
}

// Batch norm in two parts, for batches that are normalised together.
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
                     double mean = 0, square = 0;
                     for (size_t i : places) mean += x[0].v[i] / double(places.size());
                     for (size_t i : places) square += (x[0].v[i] - mean) * (x[0].v[i] - mean);
                     means.push_back(mean), squares.push_back(square);
                   }
                   y.v.insert(y.v.end(), means.begin(), means.end());
                   y.v.insert(y.v.end(), squares.begin(), squares.end());
                   y.shape = {int64_t(y.v.size())};
                   return y;
                 },
             .terms = 32,
             .errors = {{"no channels", [] { batch_statistics(empty({3})); }, {"[3]"}}}});
    add_row({.op = "batch_norm_by",
             .variant = variant,
             .samples = {{in(s), in({3}), in({3}, 0.5, 1.5), in({3}), in({3})}},
             .run = [](X x) { return batch_norm_by(x[0], x[1], x[2], x[3], x[4], 0.01); },
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
             .errors = {{"mean",
                         [] {
                           batch_norm_by(empty({2, 3}), empty({4}), empty({3}), {}, {}, 0);
                         },
                         {"[2,3]", "[4]"}},
                        {"eps",
                         [] {
                           batch_norm_by(empty({2, 3}), empty({3}), empty({3}), {}, {}, -1);
                         },
                         {"eps", "-1"}}}});
  }
}

void add_batch_norm() {
  const auto normalised = [](A x, bool training, const std::vector<double>& mean,
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
      double m = 0, s = 0;
      for (size_t i : at) m += v.v[i] / double(at.size());
      for (size_t i : at) s += (v.v[i] - m) * (v.v[i] - m) / double(at.size());
      if (!training) m = mean[size_t(c)], s = var[size_t(c)];
      for (size_t i : at) {
        y.v[i] = (v.v[i] - m) / std::sqrt(s + eps);
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
      const auto reference = [=](A x) { return normalised(x, training, mean, var, 0.01); };
      add_row({.op = "batch_norm",
               .variant = variant,
               .samples = {{in(s), in({3}), in({3})}},
               .run = [run](X x) { return run(x[0], x[1], x[2]); },
               .reference = reference,
               .terms = 32,
               .errors = {{"weight",
                           [] {
                             batch_norm(empty({2, 3}), empty({4}), empty({4}), {}, {}, {.training = true});
                           },
                           {"[2,3]", "[4]"}},
                          {"one value per channel",
                           [] {
                             batch_norm(empty({1, 3}), {}, {}, {}, {}, {.training = true});
                           },
                           {"[1,3]"}},
                          {"no statistics",
                           [] {
                             batch_norm(empty({2, 3}), {}, {}, {}, {}, {.training = false});
                           },
                           {"running"}}}});
      add_row({.op = "batch_norm",
               .variant = variant + " without weight",
               .samples = {{in(s)}},
               .run = [run](X x) { return run(x[0], {}, {}); },
               .reference = reference,
               .terms = 32});
    }
  }
}

}  // namespace

static const bool added = [] {
  add_pooling();
  add_pooling_gradients();
  add_batch_norm();
  add_joined_batch_norm();
  return true;
}();

}  // namespace gradus::optest
