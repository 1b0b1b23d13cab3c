// Rows of matrix products, convolution, pooling and normalisation.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/op_table.h"

namespace gradus::optest {
namespace {

// a[...,M,K] b[...,K,N], batch dims broadcast; vectors as in NumPy.
Array matmul_of(Array a, Array b) {
  const bool vector_a = a.dim() == 1, vector_b = b.dim() == 1;
  if (vector_a) a.shape.insert(0, 1);
  if (vector_b) b.shape.push_back(1);
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  Shape batch_a = a.shape, batch_b = b.shape;
  for (Shape* s : {&batch_a, &batch_b}) s->erase(s->size() - 1), s->erase(s->size() - 1);
  const Shape batch = broadcast_shapes(batch_a, batch_b, "reference");
  Array index_a(batch_a), index_b(batch_b);
  for (size_t i = 0; i < index_a.v.size(); ++i) index_a.v[i] = double(i);
  for (size_t i = 0; i < index_b.v.size(); ++i) index_b.v[i] = double(i);
  Array y;
  y.shape = batch;
  if (!vector_a) y.shape.push_back(m);
  if (!vector_b) y.shape.push_back(n);
  for (int64_t g = 0; g < batch.product(); ++g) {
    const double* pa = a.v.data() + int64_t(broadcast_at(index_a, batch, g)) * m * k;
    const double* pb = b.v.data() + int64_t(broadcast_at(index_b, batch, g)) * k * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double s = 0;
        for (int64_t l = 0; l < k; ++l) s += pa[i * k + l] * pb[l * n + j];
        y.v.push_back(s);
      }
    }
  }
  return y;
}

void add_matmul() {
  const auto product = [](const char* variant, const Shape& a, const Shape& b) {
    add_row({.op = "matmul",
             .variant = variant,
             .samples = {{in(a), in(b)}},
             .run = [](X x) { return matmul(x[0], x[1]); },
             .reference = [](A x) { return matmul_of(x[0], x[1]); },
             .terms = double(a.back()),
             .errors = {{"inner sizes",
                         [] {
                           matmul(empty({2, 3}), empty({4, 5}));
                         },
                         {"[2,3]", "[4,5]"}},
                        {"batch sizes",
                         [] {
                           matmul(empty({2, 3, 4}), empty({3, 4, 5}));
                         },
                         {"[2,3,4]", "[3,4,5]"}},
                        {"a scalar",
                         [] {
                           matmul(empty({}), empty({4, 5}));
                         },
                         {"[4,5]"}}}});
  };
  product("", {3, 5}, {5, 4});
  product("one row", {1, 5}, {5, 1});
  product("dot", {6}, {6});
  product("matrix by vector", {3, 6}, {6});
  product("vector by matrix", {6}, {6, 3});
  product("batched", {2, 3, 4}, {2, 4, 5});
  product("batch broadcasts", {2, 1, 3, 4}, {5, 4, 2});
  product("matrix by batch", {3, 4}, {2, 4, 2});
  product("batch by matrix", {2, 3, 4}, {4, 2});
  product("batch by vector", {2, 3, 4}, {4});
  // Past the sizes of blocks and vector registers.
  product("large", {67, 130}, {130, 65});
  product("large batch", {3, 33, 40}, {3, 40, 35});
  product("large matrix by vector", {150, 200}, {200});

  const auto linear_of = [](A x) {
    Array y = matmul_of(x[0], transpose_to(x[1], {1, 0}));
    if (x.size() > 2) {
      for (size_t i = 0; i < y.v.size(); ++i) y.v[i] += x[2].v[i % x[2].v.size()];
    }
    return y;
  };
  add_row({.op = "linear",
           .samples = {{in({4, 6}), in({3, 6}), in({3})},
                       {in({2, 2, 6}), in({3, 6}), in({3})},
                       {in({6}), in({3, 6}), in({3})}},
           .run = [](X x) { return linear(x[0], x[1], x[2]); },
           .reference = linear_of,
           .terms = 7,
           .errors = {{"features",
                       [] {
                         linear(empty({2, 3}), empty({4, 5}), empty({4}));
                       },
                       {"[2,3]", "[4,5]"}},
                      {"bias",
                       [] {
                         linear(empty({2, 3}), empty({4, 3}), empty({5}));
                       },
                       {"[5]"}}}});
  add_row({.op = "linear",
           .variant = "without bias",
           .samples = {{in({4, 6}), in({3, 6})}},
           .run = [](X x) { return linear(x[0], x[1]); },
           .reference = linear_of,
           .terms = 6});
}

struct ConvCase {
  const char* name;
  Shape x, w;
  Conv2dOptions options;
};

Shape conv_shape(const Shape& x, const Shape& w, const Conv2dOptions& o) {
  const auto out = [](int64_t n, int64_t k, int64_t s, int64_t p, int64_t d) {
    return (n + 2 * p - d * (k - 1) - 1) / s + 1;
  };
  return {x[0], w[0], out(x[2], w[2], o.stride.h, o.padding.h, o.dilation.h),
          out(x[3], w[3], o.stride.w, o.padding.w, o.dilation.w)};
}

// Calls f(offset in y, offset in x, offset in w) for every product of the convolution.
void for_each_product(const Shape& xs, const Shape& ws, const Conv2dOptions& o,
                      const std::function<void(size_t, size_t, size_t)>& f) {
  const Array x(xs), w(ws), y(conv_shape(xs, ws, o));
  const int64_t in_group = ws[1], out_group = ws[0] / o.groups;
  for (int64_t n = 0; n < xs[0]; ++n)
    for (int64_t c = 0; c < ws[0]; ++c)
      for (int64_t p = 0; p < y.shape[2]; ++p)
        for (int64_t q = 0; q < y.shape[3]; ++q)
          for (int64_t k = 0; k < in_group; ++k)
            for (int64_t i = 0; i < ws[2]; ++i)
              for (int64_t j = 0; j < ws[3]; ++j) {
                const int64_t h = p * o.stride.h - o.padding.h + i * o.dilation.h;
                const int64_t v = q * o.stride.w - o.padding.w + j * o.dilation.w;
                if (h < 0 || v < 0 || h >= xs[2] || v >= xs[3]) continue;
                f(size_t(y.offset({n, c, p, q})), size_t(x.offset({n, c / out_group * in_group + k, h, v})),
                  size_t(w.offset({c, k, i, j})));
              }
}

void add_convolution() {
  const ConvCase cases[] = {
      {"", {2, 3, 5, 4}, {4, 3, 3, 3}, {}},
      {"padding", {2, 2, 4, 4}, {3, 2, 3, 3}, {.padding = 1}},
      {"stride", {1, 2, 6, 5}, {3, 2, 3, 3}, {.stride = 2, .padding = 1}},
      {"stride leaves a rest", {1, 2, 6, 6}, {2, 2, 3, 3}, {.stride = 2}},
      {"dilation", {1, 2, 6, 6}, {2, 2, 3, 3}, {.padding = 2, .dilation = 2}},
      {"groups", {2, 4, 3, 4}, {6, 2, 3, 3}, {.padding = 1, .groups = 2}},
      {"depthwise", {1, 4, 5, 4}, {4, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 4}},
      {"1x1", {2, 5, 3, 2}, {3, 5, 1, 1}, {}},
      {"uneven", {1, 2, 4, 7}, {3, 2, 2, 5}, {.stride = {2, 1}, .padding = {1, 2}}},
      {"one channel", {2, 1, 6, 6}, {2, 1, 3, 3}, {}},
      {"large", {2, 17, 13, 11}, {20, 17, 3, 3}, {.padding = 1}},
      {"large stride", {2, 16, 15, 15}, {24, 16, 3, 3}, {.stride = 2, .padding = 1}},
      {"large depthwise", {2, 24, 12, 12}, {24, 1, 3, 3}, {.padding = 1, .groups = 24}},
      {"large 1x1", {2, 33, 9, 9}, {34, 33, 1, 1}, {}},
      {"large one channel", {4, 1, 28, 28}, {32, 1, 3, 3}, {}},
  };
  for (const ConvCase& c : cases) {
    const Conv2dOptions o = c.options;
    const Shape xs = c.x, ws = c.w, ys = conv_shape(c.x, c.w, o);
    const double terms = double(ws[1] * ws[2] * ws[3]);
    const auto forward = [=](A x) {
      Array y(ys);
      for_each_product(xs, ws, o,
                       [&](size_t iy, size_t ix, size_t iw) { y.v[iy] += x[0].v[ix] * x[1].v[iw]; });
      if (x.size() > 2) {
        const size_t area = size_t(ys[2] * ys[3]);
        for (size_t i = 0; i < y.v.size(); ++i) y.v[i] += x[2].v[i / area % size_t(ys[1])];
      }
      return y;
    };
    add_row({.op = "conv2d",
             .variant = c.name,
             .samples = {{in(xs), in(ws), in({ws[0]})}},
             .run = [=](X x) { return conv2d(x[0], x[1], x[2], o); },
             .reference = forward,
             .terms = terms,
             .errors = {{"channels",
                         [] {
                           conv2d(empty({1, 3, 5, 5}), empty({2, 4, 3, 3}), {}, {});
                         },
                         {"4", "3", "[1,3,5,5]"}},
                        {"filter larger than the image",
                         [] {
                           conv2d(empty({1, 3, 2, 2}), empty({2, 3, 3, 3}), {}, {});
                         },
                         {"[1,3,2,2]"}},
                        {"dims",
                         [] {
                           conv2d(empty({3, 5, 5}), empty({2, 3, 3, 3}), {}, {});
                         },
                         {"[3,5,5]"}},
                        {"bias",
                         [] {
                           conv2d(empty({1, 3, 5, 5}), empty({2, 3, 3, 3}), empty({3}), {});
                         },
                         {"[3]"}}}});
    add_row({.op = "conv2d",
             .variant = std::string(c.name) + " without bias",
             .samples = {{in(xs), in(ws)}},
             .run = [=](X x) { return conv2d(x[0], x[1], {}, o); },
             .reference = forward,
             .terms = terms});
    add_row({.op = "conv2d_input_grad",
             .variant = c.name,
             .samples = {{in(ys), in(ws)}},
             .run = [=](X x) { return conv2d_input_grad(x[0], x[1], xs, o); },
             .reference =
                 [=](A x) {
                   Array dx(xs);
                   for_each_product(xs, ws, o, [&](size_t iy, size_t ix, size_t iw) {
                     dx.v[ix] += x[0].v[iy] * x[1].v[iw];
                   });
                   return dx;
                 },
             .terms = double(ws[0] / o.groups * ws[2] * ws[3])});
    add_row({.op = "conv2d_weight_grad",
             .variant = c.name,
             .samples = {{in(ys), in(xs)}},
             .run = [=](X x) { return conv2d_weight_grad(x[0], x[1], ws, false, o).first; },
             .reference =
                 [=](A x) {
                   Array dw(ws);
                   for_each_product(xs, ws, o, [&](size_t iy, size_t ix, size_t iw) {
                     dw.v[iw] += x[0].v[iy] * x[1].v[ix];
                   });
                   return dw;
                 },
             .terms = double(ys[0] * ys[2] * ys[3])});
  }
}

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
  add_matmul();
  add_convolution();
  add_pooling();
  add_pooling_gradients();
  add_batch_norm();
  add_joined_batch_norm();
  return true;
}();

}  // namespace gradus::optest
