// Rows of the op test table for max, average, adaptive and lp pooling, max_unpool and the ops of pooling's
// gradients. References loop over each window in f64. Each row is tested against its f64 reference, its
// gradients against difference quotients; op_table.h explains the fields.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

struct Window {
  int64_t first, last;  // pixels [first, last) along an axis; may exceed the image
  int64_t step;
};

int64_t pooled_size(int64_t n, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                    bool ceil_mode) {
  const int64_t span = n + 2 * padding - dilation * (kernel - 1) - 1;
  int64_t out = (ceil_mode ? (span + stride - 1) / stride : span / stride) + 1;
  if (ceil_mode && (out - 1) * stride >= n + padding)
    --out;  // a last window that starts in the padding is left out
  return out;
}

// y[n,c,p,q] = f(values of the window inside the image, the window's number of pixels with padding)
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
      {"ceil beyond the image", {2, 9, 2, 4}, {3, 2}, {3, 2}, 0, 1, true},
      {"ceil beyond the padded image", {1, 2, 2, 3}, {5, 6}, {4, 5}, 1, 1, true},
      {"ceil beyond the image without its padding", {1, 2, 2, 3}, {5, 6}, {4, 5}, 1, 1, true, false},
      {"exclude padding", {1, 2, 6, 5}, 3, 2, 1, 1, false, false},
      {"uneven", {1, 2, 6, 7}, {2, 3}, {1, 2}, {1, 0}},
      {"steps over cells", {1, 2, 6, 6}, 1, 2},
      {"large", {2, 19, 24, 24}, 2, 2},
      {"large overlapping", {2, 19, 17, 15}, 3, 2, 1},
  };
  for (const Pool& c : cases) {
    const auto out = [c](const Array& x) {
      return Size2(pooled_size(x.shape[2], c.kernel.h, c.stride.h, c.padding.h, 1, c.ceil_mode),
                   pooled_size(x.shape[3], c.kernel.w, c.stride.w, c.padding.w, 1, c.ceil_mode));
    };
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
               .reference = [=](A x) { return pool(x[0], out(x[0]), rows, columns, c.padding, max_of); },
               .errors = {ERROR_CASE(max_pool2d(empty({1, 1, 2, 2}), {.kernel = Size2(3)}), "[1,1,2,2]"),
                          ERROR_CASE(max_pool2d(empty({2, 2}), {.kernel = Size2(2)}), "[2,2]"),
                          ERROR_CASE(max_pool2d(empty({1, 1, 4, 4}), {.kernel = Size2(2), .padding = 2}),
                                     "padding")}});
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
                   return pool(x[0], out(x[0]), rows, columns, c.padding,
                               [c](const std::vector<double>& v, int64_t cells) {
                                 double s = 0;
                                 for (double e : v) s += e;
                                 return s / double(c.include_pad ? cells : int64_t(v.size()));
                               });
                 },
             .terms = 9,
             .errors = {ERROR_CASE(avg_pool2d(empty({1, 1, 2, 2}), {.kernel = Size2(3)}), "[1,1,2,2]")}});
  }
  add_row({.op = "max_pool2d",
           .variant = "dilation",
           .samples = {{distinct({1, 2, 5, 6})}},
           .run = RUN(max_pool2d(x[0], {.kernel = Size2(2), .stride = 1, .dilation = 2})),
           .reference = [](A x) {
             const auto w = [](int64_t p) { return Window{p, p + 3, 2}; };
             return pool(x[0], {x[0].size(2) - 2, x[0].size(3) - 2}, w, w, 0, max_of);
           }});
  for (const auto& [s, out] : {std::pair<Shape, Size2>{{2, 3, 4, 5}, 1},
                               {{1, 2, 7, 5}, {3, 4}},
                               {{1, 2, 4, 4}, 2},
                               {{1, 2, 3, 3}, {3, 5}}}) {
    // Adaptive pooling's windows.
    const auto cut = [](int64_t n, int64_t parts) {
      return [=](int64_t p) { return Window{p * n / parts, ((p + 1) * n + parts - 1) / parts, 1}; };
    };
    const Size2 o = out;
    add_row({.op = "adaptive_avg_pool2d",
             .variant = concat(out),
             .samples = {{in(s)}},
             .run = [o](X x) { return adaptive_avg_pool2d(x[0], o); },
             .reference =
                 [=](A x) {
                   return pool(x[0], o, cut(x[0].size(2), o.h), cut(x[0].size(3), o.w), 0,
                               [](const std::vector<double>& v, int64_t) {
                                 double sum = 0;
                                 for (double e : v) sum += e;
                                 return sum / double(v.size());
                               });
                 },
             .terms = 20,
             .errors = {ERROR_CASE(adaptive_avg_pool2d(empty({2, 2}), 1), "[2,2]")}});
    add_row(
        {.op = "adaptive_max_pool2d",
         .variant = concat(out),
         .samples = {{distinct(s)}},
         .run = [o](X x) { return adaptive_max_pool2d(x[0], o); },
         .reference =
             [=](A x) { return pool(x[0], o, cut(x[0].size(2), o.h), cut(x[0].size(3), o.w), 0, max_of); }});
  }
}

// The ops that pooling's gradients use, on 2x2 windows: overlapping (stride 1) and disjoint (stride 2).
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
    // The position of the maximum in its window, 0 to 3, row-major.
    Input index = {
        .shape = out, .fill = Fill::kInteger, .lo = 0, .hi = 4, .fixed = true, .dtype = DType::kU8};
    const auto for_each =
        [=](const std::function<void(std::initializer_list<int64_t>, int64_t, int64_t)>& f) {
          for (int64_t c = 0; c < 2; ++c)
            for (int64_t p = 0; p < n; ++p)
              for (int64_t q = 0; q < n; ++q) f({0, c, p, q}, p * stride, q * stride);
        };
    const std::string variant = "stride " + std::to_string(stride);
    add_row({.op = "max_pool_scatter",
             .variant = variant,
             .samples = {{in(out), index}},
             .run = RUN(gradus::max_pool_scatter(x[0], raw::channels_last(x[1]), max_windows())),
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
    add_row({.op = "max_pool_gather",
             .variant = variant,
             .samples = {{in(image), index}},
             .run = RUN(gradus::max_pool_gather(x[0], raw::channels_last(x[1]), max_windows())),
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
    add_row({.op = "avg_pool_spread",
             .variant = variant,
             .samples = {{in(out)}},
             .run = RUN(gradus::avg_pool_spread(x[0], avg_windows())),
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

// --- any number of dims ---

// A window per axis; 1D and 2D inputs are volumes with leading axes of size 1.
struct Box {
  Window d, h, w;
};
using Boxes = std::function<Box(int64_t d, int64_t h, int64_t w)>;
using OfCells = std::function<double(const std::vector<double>& inside, int64_t with_padding)>;

// [N,C,(D,(H,))W] as [N,C,D,H,W].
Shape volume(const Shape& s) {
  Shape v{s[0], s[1], 1, 1, 1};
  for (int i = 2; i < s.size(); ++i) v[5 - s.size() + i] = s[i];
  return v;
}

// As pool(), in any number of dims.
Array pool_volume(const Array& given, const Shape& out, const Boxes& boxes, Size3 padding, const OfCells& f) {
  Array x = given, y(volume(out));
  x.shape = volume(given.shape);
  size_t at = 0;
  for (int64_t n = 0; n < x.shape[0] * x.shape[1]; ++n)
    for (int64_t o = 0; o < y.shape[2]; ++o)
      for (int64_t p = 0; p < y.shape[3]; ++p)
        for (int64_t q = 0; q < y.shape[4]; ++q) {
          const Box b = boxes(o, p, q);
          std::vector<double> inside;
          int64_t cells = 0;
          for (int64_t d = b.d.first; d < b.d.last; d += b.d.step)
            for (int64_t h = b.h.first; h < b.h.last; h += b.h.step)
              for (int64_t w = b.w.first; w < b.w.last; w += b.w.step) {
                if (d >= x.shape[2] + padding.d || h >= x.shape[3] + padding.h || w >= x.shape[4] + padding.w)
                  continue;
                ++cells;
                if (d < 0 || h < 0 || w < 0 || d >= x.shape[2] || h >= x.shape[3] || w >= x.shape[4])
                  continue;
                inside.push_back(x.v[size_t(((n * x.shape[2] + d) * x.shape[3] + h) * x.shape[4] + w)]);
              }
          y.v[at++] = f(inside, cells);
        }
  y.shape = out;
  return y;
}

struct Steps {
  Size3 kernel, stride, padding = 0, dilation = 1;
  bool ceil_mode = false;
};

Shape pooled_shape(const Shape& x, const Steps& s) {
  const Shape v = volume(x);
  const Shape all{x[0], x[1],
                  pooled_size(v[2], s.kernel.d, s.stride.d, s.padding.d, s.dilation.d, s.ceil_mode),
                  pooled_size(v[3], s.kernel.h, s.stride.h, s.padding.h, s.dilation.h, s.ceil_mode),
                  pooled_size(v[4], s.kernel.w, s.stride.w, s.padding.w, s.dilation.w, s.ceil_mode)};
  Shape y{x[0], x[1]};
  for (int i = 2; i < x.size(); ++i) y.push_back(all[5 - x.size() + i]);
  return y;
}

Boxes boxes_of(const Steps& s) {
  const auto window = [](int64_t i, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    const int64_t first = i * stride - padding;
    return Window{first, first + (kernel - 1) * dilation + 1, dilation};
  };
  return [=](int64_t d, int64_t h, int64_t w) {
    return Box{window(d, s.kernel.d, s.stride.d, s.padding.d, s.dilation.d),
               window(h, s.kernel.h, s.stride.h, s.padding.h, s.dilation.h),
               window(w, s.kernel.w, s.stride.w, s.padding.w, s.dilation.w)};
  };
}

// The windows of adaptive pooling from x to y.
Boxes even_boxes(const Shape& x, const Shape& y) {
  const auto cut = [](int64_t i, int64_t n, int64_t parts) {
    return Window{i * n / parts, ((i + 1) * n + parts - 1) / parts, 1};
  };
  return [cut, a = volume(x), b = volume(y)](int64_t d, int64_t h, int64_t w) {
    return Box{cut(d, a[2], b[2]), cut(h, a[3], b[3]), cut(w, a[4], b[4])};
  };
}

double mean_of(const std::vector<double>& v, int64_t) {
  double s = 0;
  for (double e : v) s += e;
  return s / double(v.size());
}
double mean_with_padding(const std::vector<double>& v, int64_t cells) {
  return v.empty() ? 0 : mean_of(v, 0) * double(v.size()) / double(cells);
}

const std::vector<DType> kAllFloats = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

ErrorCase wrong_dims(std::function<void()> call) { return {"dims", std::move(call), {"[2]"}}; }

// The same row for one sample, without a batch dim.
void add_sample_row(OpCase row) {
  row.variant += " without batch";
  Shape one = row.samples[0][0].shape;
  one.erase(0);
  row.samples.resize(1);
  row.samples[0][0].shape = one;
  row.reference = [f = row.reference](A x) {
    Array batch = x[0];
    batch.shape = {1};
    for (int64_t n : x[0].shape) batch.shape.push_back(n);
    Array y = f({batch});
    y.shape.erase(0);
    return y;
  };
  row.errors = {};
  add_row(std::move(row));
}
void add_with_sample(const OpCase& row) {
  add_row(row);
  add_sample_row(row);
}

void add_max(const std::string& op, const std::string& variant, const Shape& x, const Steps& s,
             std::function<Tensor(X)> run, std::vector<ErrorCase> errors) {
  const Shape none = [&] {
    Shape e = x;
    e[0] = 0;
    return e;
  }();
  add_with_sample({.op = op,
                   .variant = variant,
                   .samples = {{distinct(x)}, {distinct(none)}},
                   .run = std::move(run),
                   .reference =
                       [=](A in) {
                         return pool_volume(in[0], pooled_shape(in[0].shape, s), boxes_of(s), s.padding,
                                            max_of);
                       },
                   .dtypes = kAllFloats,
                   .errors = std::move(errors)});
}

void add_mean(const std::string& op, const std::string& variant, const Shape& x, const Steps& s,
              const OfCells& f, std::function<Tensor(X)> run, std::vector<ErrorCase> errors) {
  add_with_sample(
      {.op = op,
       .variant = variant,
       .samples = {{in(x)}},
       .run = std::move(run),
       .reference =
           [=](A v) { return pool_volume(v[0], pooled_shape(v[0].shape, s), boxes_of(s), s.padding, f); },
       .terms = 27,
       .dtypes = kAllFloats,
       .errors = std::move(errors)});
}

void add_signals_and_volumes() {
  for (const auto& [name, x, o] :
       {std::tuple<const char*, Shape, MaxPool1dOptions>{"", {2, 3, 7}, {.kernel = 2}},
        {"one cell", {1, 1, 1}, {.kernel = 1}},
        {"padding", {2, 2, 8}, {.kernel = 3, .stride = 2, .padding = 1}},
        {"dilation and ceil", {1, 9, 10}, {.kernel = 3, .stride = 2, .dilation = 2, .ceil_mode = true}}}) {
    const MaxPool1dOptions m = o;
    const int64_t stride = o.stride ? o.stride : *o.kernel;
    const Steps s{{1, 1, *o.kernel}, {1, 1, stride}, {0, 0, o.padding}, {1, 1, o.dilation}, o.ceil_mode};
    const std::vector<ErrorCase> errors = {
        wrong_dims([] { max_pool1d(empty({2}), {.kernel = 1}); }),
        ERROR_CASE(max_pool1d(empty({1, 1, 2}), {.kernel = 3}), "larger", "[1,1,2]"),
        ERROR_CASE(max_pool1d(empty({1, 1, 2}), {.kernel = 0}), "kernel", "0"),
        ERROR_CASE(max_pool1d(empty({1, 1, 4}), {.kernel = 2, .padding = 2}), "padding"),
        ERROR_CASE(max_pool1d(empty({1, 1, 4}, {.dtype = DType::kI64}), {.kernel = 2}), "i64")};
    add_max(
        "max_pool1d", name, x, s, [m](X v) { return max_pool1d(v[0], m); }, errors);
    add_max("max_pool1d_with_indices", name, x, s,
            [m](X v) { return max_pool1d_with_indices(v[0], m).first; },
            {wrong_dims([] { max_pool1d_with_indices(empty({2}), {.kernel = 1}); })});
    if (o.dilation == 1) {
      const AvgPool1dOptions a{
          .kernel = *o.kernel, .stride = o.stride, .padding = o.padding, .ceil_mode = o.ceil_mode};
      add_mean("avg_pool1d", name, x, s, mean_with_padding, [a](X v) { return avg_pool1d(v[0], a); },
               {wrong_dims([] { avg_pool1d(empty({2}), {.kernel = 1}); })});
      AvgPool1dOptions b = a;
      b.count_include_pad = false;
      add_mean("avg_pool1d", std::string(name) + " without padding", x, s, mean_of,
               [b](X v) { return avg_pool1d(v[0], b); }, {});
    }
  }
  for (const auto& [name, x, o] :
       {std::tuple<const char*, Shape, MaxPool3dOptions>{"", {2, 3, 4, 4, 6}, {.kernel = 2}},
        {"padding",
         {1, 2, 3, 5, 4},
         {.kernel = 3, .stride = {1, 2, 2}, .padding = {1, 0, 1}, .ceil_mode = true}},
        {"large", {1, 9, 7, 6, 5}, {.kernel = {2, 3, 2}, .stride = 1}}}) {
    const MaxPool3dOptions m = o;
    const Size3 stride = o.stride == Size3(0) ? *o.kernel : o.stride;
    const Steps s{*o.kernel, stride, o.padding, o.dilation, o.ceil_mode};
    add_max("max_pool3d", name, x, s, [m](X v) { return max_pool3d(v[0], m); },
            {wrong_dims([] { max_pool3d(empty({2}), {.kernel = Size3(1)}); }),
             ERROR_CASE(max_pool3d(empty({1, 1, 2, 4, 4}), {.kernel = Size3(3)}), "larger", "[1,1,2,4,4]")});
    add_max("max_pool3d_with_indices", name, x, s,
            [m](X v) { return max_pool3d_with_indices(v[0], m).first; },
            {wrong_dims([] { max_pool3d_with_indices(empty({2}), {.kernel = Size3(1)}); })});
    const AvgPool3dOptions a{
        .kernel = *o.kernel, .stride = o.stride, .padding = o.padding, .ceil_mode = o.ceil_mode};
    add_mean("avg_pool3d", name, x, s, mean_with_padding, [a](X v) { return avg_pool3d(v[0], a); },
             {wrong_dims([] { avg_pool3d(empty({2}), {.kernel = Size3(1)}); }),
              ERROR_CASE(avg_pool3d(empty({1, 1, 2, 2, 2}), {.kernel = Size3(1), .divisor_override = -1}),
                         "divisor_override", "-1")});
    AvgPool3dOptions b = a;
    b.divisor_override = 5;
    add_mean(
        "avg_pool3d", std::string(name) + " divisor", x, s,
        [](const std::vector<double>& v, int64_t) {
          return v.empty() ? 0 : mean_of(v, 0) * double(v.size()) / 5;
        },
        [b](X v) { return avg_pool3d(v[0], b); }, {});
  }
  const Steps image{{1, 3, 2}, {1, 2, 1}, {0, 1, 1}};
  add_max("max_pool2d_with_indices", "", {2, 3, 5, 4}, image,
          [](X v) {
            return max_pool2d_with_indices(v[0], {.kernel = {3, 2}, .stride = {2, 1}, .padding = 1}).first;
          },
          {wrong_dims([] { max_pool2d_with_indices(empty({2}), {.kernel = Size2(1)}); })});
  add_mean(
      "avg_pool2d", "divisor", {2, 3, 5, 4}, image,
      [](const std::vector<double>& v, int64_t) { return mean_of(v, 0) * double(v.size()) / 4; },
      [](X v) {
        return avg_pool2d(v[0], {.kernel = {3, 2}, .stride = {2, 1}, .padding = 1, .divisor_override = 4});
      },
      {ERROR_CASE(avg_pool2d(empty({1, 1, 2, 2}), {.kernel = Size2(1), .divisor_override = -2}), "-2")});
}

void add_adaptive() {
  const auto add = [](const std::string& op, const Shape& x, const Shape& y, bool is_max,
                      std::function<Tensor(X)> run, std::vector<ErrorCase> errors) {
    add_with_sample({.op = op,
                     .variant = concat(x, " to ", y),
                     .samples = {{is_max ? distinct(x) : in(x)}},
                     .run = std::move(run),
                     .reference =
                         [=](A v) {
                           const Shape& x = v[0].shape;
                           Shape out = y;
                           out[0] = x[0], out[1] = x[1];
                           return pool_volume(v[0], out, even_boxes(x, out), 0,
                                              is_max ? OfCells(max_of) : mean_of);
                         },
                     .terms = 30,
                     .dtypes = kAllFloats,
                     .errors = std::move(errors)});
  };
  for (int64_t n : {1, 3, 8}) {
    add("adaptive_avg_pool1d", {2, 3, 7}, {2, 3, n}, false, [n](X v) { return adaptive_avg_pool1d(v[0], n); },
        {wrong_dims([] { adaptive_avg_pool1d(empty({2}), 1); }),
         ERROR_CASE(adaptive_avg_pool1d(empty({2, 2, 2}), 0), "output size", "0")});
    add("adaptive_max_pool1d", {2, 3, 7}, {2, 3, n}, true, [n](X v) { return adaptive_max_pool1d(v[0], n); },
        {wrong_dims([] { adaptive_max_pool1d(empty({2}), 1); })});
    add("adaptive_max_pool1d_with_indices", {2, 3, 7}, {2, 3, n}, true,
        [n](X v) { return adaptive_max_pool1d_with_indices(v[0], n).first; },
        {wrong_dims([] { adaptive_max_pool1d_with_indices(empty({2}), 1); })});
  }
  for (const Size3& s : {Size3(1), Size3(2, 3, 4)}) {
    const Shape y{1, 2, s.d, s.h, s.w};
    add("adaptive_avg_pool3d", {1, 2, 3, 5, 4}, y, false, [s](X v) { return adaptive_avg_pool3d(v[0], s); },
        {wrong_dims([] { adaptive_avg_pool3d(empty({2}), 1); })});
    add("adaptive_max_pool3d", {1, 2, 3, 5, 4}, y, true, [s](X v) { return adaptive_max_pool3d(v[0], s); },
        {wrong_dims([] { adaptive_max_pool3d(empty({2}), 1); })});
    add("adaptive_max_pool3d_with_indices", {1, 2, 3, 5, 4}, y, true,
        [s](X v) { return adaptive_max_pool3d_with_indices(v[0], s).first; },
        {wrong_dims([] { adaptive_max_pool3d_with_indices(empty({2}), 1); })});
  }
  add("adaptive_max_pool2d_with_indices", {1, 2, 3, 5}, {1, 2, 2, 3}, true,
      [](X v) {
        return adaptive_max_pool2d_with_indices(v[0], {2, 3}).first;
      },
      {wrong_dims([] { adaptive_max_pool2d_with_indices(empty({2}), 1); })});
  // The indices of the maxima; one case has a window of more than 256 elements.
  for (const auto& [x, size] : {std::pair<Shape, Size3>{{2, 9, 3, 5, 4}, {2, 3, 4}}, {{1, 2, 5, 9, 8}, 1}}) {
    const Shape in_shape = x, y{x[0], x[1], size.d, size.h, size.w};
    add_row({.op = "adaptive_max_pool3d_with_indices",
             .variant = concat("positions ", x),
             .samples = {{distinct(x)}},
             .run = [s = size](X v) { return adaptive_max_pool3d_with_indices(v[0], s).second; },
             .reference =
                 [=](A v) {
                   Array places = v[0];
                   std::iota(places.v.begin(), places.v.end(), 0);
                   const int64_t cells = in_shape[2] * in_shape[3] * in_shape[4];
                   return pool_volume(places, y, even_boxes(in_shape, y), 0,
                                      [&](const std::vector<double>& inside, int64_t) {
                                        double first = inside[0];
                                        for (double place : inside)
                                          if (v[0].v[size_t(place)] > v[0].v[size_t(first)]) first = place;
                                        return double(int64_t(first) % cells);
                                      });
                 },
             .fixed_result = true,
             .result = DType::kI64,
             .differentiable = false,
             .dtypes = {DType::kF32, DType::kF64}});
  }
  add("adaptive_max_pool2d", {1, 2, 3, 5}, {1, 2, 2, 2}, true,
      [](X v) { return adaptive_max_pool2d(v[0], 2); },
      {wrong_dims([] { adaptive_max_pool2d(empty({2}), 1); })});
}

void add_unpooling() {
  const Shape s{2, 2, 3};
  add_row({.op = "max_unpool",
           .variant = "without batch",
           .samples = {{in({2, 3}), indices({2, 3}, {0, 2, 5, 1, 3, 4})}},
           .run = RUN(max_unpool(x[0], x[1], {6})),
           .reference = [](A x) {
             Array y({2, 6});
             for (size_t i = 0; i < x[0].v.size(); ++i) y.v[i / 3 * 6 + size_t(x[1].v[i])] = x[0].v[i];
             return y;
           }});
  add_row(
      {.op = "max_unpool",
       .samples = {{in(s), indices(s, {0, 2, 5, 1, 3, 4, 5, 4, 3, 0, 1, 2})}},
       .run = RUN(max_unpool(x[0], x[1], {6})),
       .reference =
           [](A x) {
             Array y({2, 2, 6});
             for (size_t i = 0; i < x[0].v.size(); ++i) y.v[i / 3 * 6 + size_t(x[1].v[i])] = x[0].v[i];
             return y;
           },
       .errors = {
           ERROR_CASE(max_unpool(empty({2}), empty({2}, {.dtype = DType::kI64}), {3}), "[2]"),
           ERROR_CASE(max_unpool(empty({1, 2, 2}), empty({1, 2, 3}, {.dtype = DType::kI64}), {4}), "[1,2,2]",
                      "[1,2,3]"),
           ERROR_CASE(max_unpool(empty({1, 2, 2}), empty({1, 2, 2}, {.dtype = DType::kI64}), {0}), "[0]"),
           ERROR_CASE(max_unpool(zeros({1, 1, 1}), full({1, 1, 1}, 7, {.dtype = DType::kI64}), {4}), "7")}});
}

void add_lp() {
  for (double p : {1.0, 2.0, 3.0}) {
    const auto norm = [p](const std::vector<double>& v, int64_t cells) {
      double s = 0;
      for (double e : v) s += std::pow(e, p);
      return std::pow(s * double(cells) / double(cells), 1 / p);
    };
    const Steps line{{1, 1, 3}, {1, 1, 2}}, square{{1, 2, 3}, {1, 2, 3}};
    const std::string variant = concat("p ", p);
    add_with_sample(
        {.op = "lp_pool1d",
         .variant = variant,
         .samples = {{in({2, 3, 7}, 0.3, 1.5)}},
         .run = [p](X x) { return lp_pool1d(x[0], {.p = p, .kernel = 3, .stride = 2}); },
         .reference =
             [=](A x) { return pool_volume(x[0], pooled_shape(x[0].shape, line), boxes_of(line), 0, norm); },
         .terms = 20,
         .errors = {wrong_dims([] { lp_pool1d(empty({2}), {.p = 2, .kernel = 1}); }),
                    ERROR_CASE(lp_pool1d(empty({1, 2, 2}), {.p = 0, .kernel = 1}), "p must", "0")}});
    add_with_sample(
        {.op = "lp_pool2d",
         .variant = variant,
         .samples = {{in({2, 3, 4, 6}, 0.3, 1.5)}},
         .run =
             [p](X x) {
               return lp_pool2d(x[0], {.p = p, .kernel = {2, 3}});
             },
         .reference =
             [=](A x) {
               return pool_volume(x[0], pooled_shape(x[0].shape, square), boxes_of(square), 0, norm);
             },
         .terms = 20,
         .errors = {wrong_dims([] { lp_pool2d(empty({2}), {.p = 2, .kernel = 1}); }),
                    ERROR_CASE(lp_pool2d(empty({1, 2, 2, 2}), {.p = -1, .kernel = 1}), "p must", "-1")}});
    const Steps cube{{2, 1, 2}, {1, 1, 2}};
    add_with_sample(
        {.op = "lp_pool3d",
         .variant = variant,
         .samples = {{in({1, 2, 3, 2, 4}, 0.3, 1.5)}},
         .run =
             [p](X x) {
               return lp_pool3d(x[0], {.p = p, .kernel = {2, 1, 2}, .stride = {1, 1, 2}});
             },
         .reference =
             [=](A x) { return pool_volume(x[0], pooled_shape(x[0].shape, cube), boxes_of(cube), 0, norm); },
         .terms = 20,
         .errors = {wrong_dims([] { lp_pool3d(empty({2}), {.p = 2, .kernel = 1}); }),
                    ERROR_CASE(lp_pool3d(empty({1, 1, 2, 2, 2}), {.p = 0, .kernel = 1}), "p must", "0")}});
  }
}

// The first element of window i of `out` in a dim of n elements, for a random sample of kSample.
constexpr double kSample = 0.375;
int64_t fractional_start(int64_t i, int64_t n, int64_t out, int64_t kernel) {
  if (i == out - 1) return n - kernel;
  const double step = double(n - kernel) / double(out - 1);
  return int64_t((double(i) + kSample) * step) - int64_t(kSample * step);
}

void add_fractional() {
  const auto samples = [](const Tensor& x, int64_t rank) {
    return full({x.size(0), x.size(1), rank}, kSample, {.dtype = DType::kF64, .device = x.device()});
  };
  const auto one = [](const Tensor& x) { return full({1, 1, 2}, kSample, {.device = x.device()}); };
  const std::vector<ErrorCase>
      errors =
          {ERROR_CASE(fractional_max_pool2d(empty({2}), {.kernel = 1, .output = 1}), "f32[2]"),
           ERROR_CASE(fractional_max_pool2d(empty({1, 1, 4, 4}), {.kernel = 2}), "output_ratio"),
           ERROR_CASE(
               fractional_max_pool2d(empty({1, 1, 4, 4}), {.kernel = 2, .output = 2, .output_ratio = {0.5}}),
               "output_ratio"),
           ERROR_CASE(fractional_max_pool2d(empty({1, 1, 4, 4}), {.kernel = 2, .output_ratio = {1.5}}),
                      "output_ratio", "1.5"),
           ERROR_CASE(
               fractional_max_pool2d(empty({1, 1, 4, 4}), {.kernel = 2, .output_ratio = {0.5, 0.5, 0.5}}),
               "output_ratio", "3"),
           ERROR_CASE(fractional_max_pool2d(empty({1, 1, 4, 4}), {.kernel = 2, .output = 4}), "output 4",
                      "kernel 2", "[1,1,4,4]"),
           ERROR_CASE(fractional_max_pool2d(empty({1, 1, 4, 4}), {.kernel = 0, .output = 2}), "kernel 0"),
           ERROR_CASE(fractional_max_pool2d(empty({1, 2, 4, 4}),
                                            {.kernel = 1, .output = 2, .random_samples = one(empty({1}))}),
                      "random_samples", "[1,2,2]", "[1,1,2]"),
           ERROR_CASE(
               fractional_max_pool2d(empty({1, 1, 4, 4}, {.dtype = DType::kI64}), {.kernel = 2, .output = 2}),
               "i64")},
      indices_errors = {
          wrong_dims([] { fractional_max_pool2d_with_indices(empty({2}), {.kernel = 1, .output = 1}); })};
  for (const bool indices : {false, true}) {
    const std::string end = indices ? "_with_indices" : "";
    add_row(
        {.op = "fractional_max_pool2d" + end,
         .samples = {{distinct({2, 3, 5, 7})}, {distinct({0, 2, 4, 4})}},
         .run =
             [=](X x) {
               const FractionalMaxPool2dOptions o{
                   .kernel = {2, 3}, .output = {3, 2}, .random_samples = samples(x[0], 2)};
               return indices ? fractional_max_pool2d_with_indices(x[0], o).first
                              : fractional_max_pool2d(x[0], o);
             },
         .reference =
             [](A x) {
               const auto windows = [](int64_t n, int64_t out, int64_t kernel) {
                 return [=](int64_t i) {
                   const int64_t first = fractional_start(i, n, out, kernel);
                   return Window{first, first + kernel, 1};
                 };
               };
               return pool(x[0], {3, 2}, windows(x[0].size(2), 3, 2), windows(x[0].size(3), 2, 3), 0, max_of);
             },
         .dtypes = kAllFloats,
         .errors = indices ? indices_errors : errors});
    add_row({.op = "fractional_max_pool3d" + end,
             .samples = {{distinct({1, 2, 4, 3, 5})}},
             .run =
                 [=](X x) {
                   const FractionalMaxPool3dOptions o{
                       .kernel = {2, 1, 3}, .output = {3, 2, 2}, .random_samples = samples(x[0], 3)};
                   return indices ? fractional_max_pool3d_with_indices(x[0], o).first
                                  : fractional_max_pool3d(x[0], o);
                 },
             .reference =
                 [](A v) {
                   const Array& x = v[0];
                   Array y({x.size(0), x.size(1), 3, 2, 2}, -std::numeric_limits<double>::infinity());
                   for (size_t at = 0; at < y.v.size(); ++at) {
                     const int64_t i = int64_t(at), plane = i / 12, d = i / 4 % 3, h = i / 2 % 2, w = i % 2;
                     for (int64_t a = 0; a < 2; ++a)
                       for (int64_t c = 0; c < 3; ++c)
                         y.v[at] = std::max(y.v[at], x.at({plane / x.size(1), plane % x.size(1),
                                                           fractional_start(d, x.size(2), 3, 2) + a,
                                                           fractional_start(h, x.size(3), 2, 1),
                                                           fractional_start(w, x.size(4), 2, 3) + c}));
                   }
                   return y;
                 },
             .dtypes = kAllFloats,
             .errors = {wrong_dims([=] {
               const FractionalMaxPool3dOptions o{.kernel = 1, .output = 1};
               indices ? fractional_max_pool3d_with_indices(empty({2}), o).first
                       : fractional_max_pool3d(empty({2}), o);
             })}});
  }
}

}  // namespace

static const bool added = [] {
  add_pooling();
  add_pooling_gradients();
  add_signals_and_volumes();
  add_adaptive();
  add_unpooling();
  add_lp();
  add_fractional();
  return true;
}();

}  // namespace gradus::optest
