// Rows of the op test table for ops that resample, pad or move pixels: interpolate, pad, unfold and fold,
// pixel and channel shuffles, FIR filters (upfirdn2d of StyleGAN), grid_sample. References in f64 loops
// follow PyTorch's definitions. Each row is tested against its f64 reference, its gradients against
// difference quotients; op_table.h explains the fields.
#include <algorithm>
#include <cmath>

#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

const std::vector<DType> kAllFloats = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
const TensorOptions kIntegers{.dtype = DType::kI64};

// weight(d, i, j): the weight of input pixel j in output pixel i along dim d.
using Weight = std::function<double(int d, int64_t i, int64_t j)>;

// y[i...] = sum_j... x[j...] prod_d weight(d, i_d, j_d), d over the spatial dims (2 and up).
Array weighted(const Array& x, const Shape& out, const Weight& weight) {
  Array y = x;
  for (int d = 2; d < x.dim(); ++d) {
    const Array from = y;
    Shape shape = from.shape;
    shape[d] = out[d];
    y = Array(shape);
    int64_t inner = 1;
    for (int e = d + 1; e < x.dim(); ++e) inner *= shape[e];
    const int64_t n = from.shape[d], m = out[d];
    for (size_t at = 0; at < y.v.size(); ++at) {
      const int64_t c = int64_t(at) % inner, i = int64_t(at) / inner % m, o = int64_t(at) / inner / m;
      for (int64_t j = 0; j < n; ++j) {
        const double w = weight(d, i, j);
        if (w != 0) y.v[at] += w * from.v[size_t((o * n + j) * inner + c)];
      }
    }
  }
  return y;
}

// Keys' cubic convolution kernel with PyTorch's a = -0.75.
double keys(double t) {
  const double a = -0.75;
  t = std::abs(t);
  return t <= 1  ? (a + 2) * t * t * t - (a + 3) * t * t + 1
         : t < 2 ? a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a
                 : 0;
}

using Mode = Interpolation;

// The weight of input pixel j of n in output pixel i. step: input pixels per output pixel.
double resize_weight(Mode mode, double step, bool aligned, int64_t n, int64_t i, int64_t j) {
  if (mode == Mode::kNearest) return j == std::min(n - 1, int64_t(double(i) * step + 1e-9));
  if (mode == Mode::kNearestExact) return j == std::min(n - 1, int64_t((double(i) + 0.5) * step + 1e-9));
  const double at = aligned ? double(i) * step : (double(i) + 0.5) * step - 0.5;
  if (mode != Mode::kBicubic)  // a hat function; its center is clamped to the image
    return std::max(0.0, 1 - std::abs(std::clamp(at, 0.0, double(n - 1)) - double(j)));
  double sum = 0;
  const int64_t left = int64_t(std::floor(at));
  for (int64_t k = left - 1; k <= left + 2; ++k)
    if (std::clamp<int64_t>(k, 0, n - 1) == j) sum += keys(at - double(k));
  return sum;
}

// `steps` empty: those that follow from the sizes.
void add_resized(const std::string& variant, const Shape& x, const Shape& y, const InterpolateOptions& o,
                 std::vector<double> steps = {}) {
  if (steps.empty())
    for (int d = 2; d < x.size(); ++d)
      steps.push_back(o.align_corners ? (y[d] > 1 ? double(x[d] - 1) / double(y[d] - 1) : 0)
                                      : double(x[d]) / double(y[d]));
  Shape none = x;
  none[0] = 0;
  add_row({.op = "interpolate",
           .variant = variant,
           .samples = {{in(x)}, {in(none)}},
           .run = [o](X v) { return interpolate(v[0], o); },
           .reference =
               [=](A v) {
                 Shape out = y;
                 out[0] = v[0].shape[0], out[1] = v[0].shape[1];
                 return weighted(v[0], out, [&](int d, int64_t i, int64_t j) {
                   if (o.mode == Mode::kArea) {
                     const int64_t first = i * x[d] / y[d], last = ((i + 1) * x[d] + y[d] - 1) / y[d];
                     return j >= first && j < last ? 1 / double(last - first) : 0.0;
                   }
                   return resize_weight(o.mode, steps[size_t(d - 2)], o.align_corners, x[d], i, j);
                 });
               },
           .terms = 64,
           .dtypes = kAllFloats});
}

void add_interpolate() {
  add_resized("nearest", {2, 3, 4}, {2, 3, 7}, {.size = {7}});
  add_resized("nearest images", {2, 9, 4, 5}, {2, 9, 8, 3}, {.size = {8, 3}});
  add_resized("nearest volumes", {1, 2, 2, 3, 4}, {1, 2, 4, 6, 8}, {.scale_factor = {2}});
  add_resized("nearest exact", {2, 3, 4, 5}, {2, 3, 9, 3}, {.size = {9, 3}, .mode = Mode::kNearestExact});
  add_resized("linear", {2, 3, 4}, {2, 3, 7}, {.size = {7}, .mode = Mode::kLinear});
  add_resized("bilinear", {2, 9, 4, 5}, {2, 9, 8, 10}, {.scale_factor = {2}, .mode = Mode::kBilinear});
  add_resized("bilinear one", {1, 1, 1, 1}, {1, 1, 3, 1}, {.size = {3, 1}, .mode = Mode::kBilinear});
  add_resized("bilinear aligned", {2, 17, 4, 5}, {2, 17, 7, 3},
              {.size = {7, 3}, .mode = Mode::kBilinear, .align_corners = true});
  add_resized("bilinear scales", {1, 2, 5, 7}, {1, 2, 6, 4},
              {.scale_factor = {1.3, 0.6}, .mode = Mode::kBilinear}, {1 / 1.3, 1 / 0.6});
  add_resized("bicubic", {1, 9, 4, 5}, {1, 9, 7, 3}, {.size = {7, 3}, .mode = Mode::kBicubic});
  add_resized("trilinear", {1, 2, 2, 3, 4}, {1, 2, 3, 5, 2}, {.size = {3, 5, 2}, .mode = Mode::kTrilinear});
  add_resized("area", {1, 2, 5, 7}, {1, 2, 2, 3}, {.size = {2, 3}, .mode = Mode::kArea});
  const auto refuses = [](const char* what, const Shape& x, const InterpolateOptions& o,
                          std::vector<std::string> says, TensorOptions t = {}) {
    return ErrorCase{what, [=] { interpolate(empty(x, t), o); }, std::move(says)};
  };
  add_row(
      {.op = "interpolate",
       .variant = "antialias of a constant",
       .samples = {{in({1, 2, 9, 7})}},
       .run = RUN(interpolate(mul(x[0], 0), {.size = {4, 3}, .mode = Mode::kBicubic, .antialias = true})),
       .reference =
           [](A) {
             return Array({1, 2, 4, 3});
           },
       .errors = {
           refuses("dims", {2, 2}, {.size = {1}}, {"[2,2]"}),
           refuses("dims of the mode", {2, 2, 2}, {.size = {1}, .mode = Mode::kBilinear}, {"[2,2,2]", "4"}),
           refuses("neither", {2, 2, 2}, {}, {"size", "scale_factor"}),
           refuses("both", {2, 2, 2}, {.size = {1}, .scale_factor = {1}}, {"size", "scale_factor"}),
           refuses("entries", {2, 2, 2, 2}, {.size = {1}}, {"1 entries", "[2,2,2,2]"}),
           refuses("size", {2, 2, 2}, {.size = {0}}, {"at least 1", "0"}),
           refuses("scale", {2, 2, 2}, {.scale_factor = {-1}}, {"positive", "-1"}),
           refuses("corners", {2, 2, 2}, {.size = {1}, .align_corners = true}, {"align_corners"}),
           refuses("antialias", {2, 2, 2}, {.size = {1}, .antialias = true}, {"antialias"}),
           refuses("no cells", {2, 2, 0}, {.size = {1}}, {"no pixels", "[2,2,0]"}),
           refuses("integers", {2, 2, 2}, {.size = {1}}, {"i64"}, kIntegers)}});
}

void add_resample() {
  auto taps = std::make_shared<AxisTaps>();
  taps->in = 3;
  taps->add(0, 2), taps->add(2, -1), taps->end_output();
  taps->end_output();
  taps->add(1, 0.5), taps->end_output();
  taps->add(0, 1), taps->add(1, 1), taps->add(2, 1), taps->add(0, 1), taps->add(2, 3), taps->end_output();
  // The same map of 3 inputs to 4 outputs as a matrix.
  const double matrix[4][3] = {{2, 0, -1}, {0, 0, 0}, {0, 0.5, 0}, {2, 1, 4}};
  Resampling rows, columns, both;
  rows.axes[1] = columns.axes[2] = both.axes[1] = both.axes[2] = taps;
  const auto add = [&](const char* variant, const Resampling& map, const Shape& x, const Shape& y) {
    add_row({.op = "resample",
             .variant = variant,
             .samples = {{in(x)}},
             .run = [map](X v) { return resample(v[0], map); },
             .reference =
                 [=](A v) {
                   Shape out = y;
                   for (int d = 0; d < 4; ++d)
                     if (d < 2 || !map.axes[size_t(d - 1)]) out[d] = v[0].shape[d];
                   return weighted(v[0], out, [&](int d, int64_t i, int64_t j) {
                     return map.axes[size_t(d - 1)] ? matrix[i][j] : double(i == j);
                   });
                 },
             .terms = 30,
             .errors = {{"dims",
                         [map] {
                           resample(empty({2, 3}), map);
                         },
                         {"[2,3]"}},
                        {"sizes",
                         [map] {
                           resample(empty({2, 2, 5, 5}), map);
                         },
                         {"3", "[2,2,5,5]"}},
                        {"dtype",
                         [map] {
                           resample(empty({2, 2, 3, 3}, kIntegers), map);
                         },
                         {"i64"}}}});
  };
  add("rows", rows, {2, 9, 3, 2}, {2, 9, 4, 2});
  add("columns", columns, {2, 9, 2, 3}, {2, 9, 2, 4});
  add("both", both, {2, 2, 3, 3}, {2, 2, 4, 4});
}

// The source pixel of position i in a padded axis of n pixels; -1: the constant.
int64_t cell_at(PadMode mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  if (mode == PadMode::kConstant) return -1;
  if (mode == PadMode::kReplicate) return i < 0 ? 0 : n - 1;
  if (mode == PadMode::kCircular) return i < 0 ? i + n : i - n;
  return i < 0 ? -i : 2 * n - 2 - i;
}

void add_padded(const std::string& variant, const Shape& x, const std::vector<int64_t>& pads,
                const PadOptions& o) {
  add_row(
      {.op = "pad",
       .variant = variant,
       .samples = {{in(x)}},
       .run = [=](X v) { return pad(v[0], pads, o); },
       .reference =
           [=](A v) {
             const Shape& x = v[0].shape;
             Shape out = x;
             std::vector<int64_t> front(size_t(x.size()), 0);
             for (size_t i = 0; 2 * i < pads.size(); ++i) {
               out[x.size() - 1 - int(i)] += pads[2 * i] + pads[2 * i + 1];
               front[size_t(x.size()) - 1 - i] = pads[2 * i];
             }
             Array y(out, o.value);
             for (size_t at = 0; at < y.v.size(); ++at) {
               int64_t left = int64_t(at), from = 0, step = 1;
               for (int d = x.size() - 1; d >= 0; --d) {
                 const int64_t cell = cell_at(o.mode, left % out[d] - front[size_t(d)], x[d]);
                 left /= out[d];
                 from = cell < 0 || from < 0 ? -1 : from + cell * step;
                 step *= x[d];
               }
               if (from >= 0) y.v[at] = v[0].v[size_t(from)];
             }
             return y;
           },
       .dtypes = kAllFloats,
       .errors = {ERROR_CASE(pad(empty({2, 2}), {1}), "pairs", "1"),
                  ERROR_CASE(pad(empty({2}), {1, 1, 1, 1}), "2 pairs", "[2]"),
                  ERROR_CASE(pad(empty({2}), {-2, -1}), "-2", "-1", "[2]"),
                  ERROR_CASE(pad(empty({2}, kIntegers), {1, 1}, {.value = 0.5}), "0.5", "i64"),
                  ERROR_CASE(pad(empty({1, 1, 3}), {3, 0}, {.mode = PadMode::kReflect}), "padding of 3",
                             "[1,1,3]"),
                  ERROR_CASE(pad(empty({1, 1, 3}), {4, 0}, {.mode = PadMode::kCircular}), "padding of 4",
                             "[1,1,3]"),
                  ERROR_CASE(pad(empty({1, 1, 0}), {1, 0}, {.mode = PadMode::kReplicate}), "[1,1,0]"),
                  ERROR_CASE(pad(empty({4, 4}), {1, 1, 1, 1}, {.mode = PadMode::kReflect}), "2 pairs",
                             "[4,4]"),
                  ERROR_CASE(pad(empty({1, 1, 3}, kIntegers), {1, 0}, {.mode = PadMode::kReflect}), "i64")}});
}

void add_pads() {
  add_padded("constant", {2, 3, 4}, {1, 2, 0, 3}, {.value = 0.5});
  add_padded("every dim", {2, 1, 3, 2}, {1, 0, 0, 1, 2, 2, 1, 1}, {});
  add_padded("crop", {4, 5, 6}, {-1, 2, -2, -1, 1, -2}, {});
  add_padded("crop all", {2, 3}, {-1, -2}, {});
  add_padded("nothing inside", {2, 3}, {-4, 2}, {});
  add_padded("empty", {0, 3}, {1, 1}, {});
  add_padded("empty grows", {0}, {1, 1}, {.value = 2});
  add_padded("reflect", {2, 9, 4, 5}, {2, 1, 3, 0}, {.mode = PadMode::kReflect});
  add_padded("reflect one image", {3, 4, 5}, {2, 1, 3, 0}, {.mode = PadMode::kReflect});
  add_padded("replicate", {1, 2, 2, 3, 4}, {5, 1, 0, 2, 1, 1}, {.mode = PadMode::kReplicate});
  add_padded("replicate signal", {3, 4}, {5, 1}, {.mode = PadMode::kReplicate});
  add_padded("circular", {2, 3, 4}, {4, 2}, {.mode = PadMode::kCircular});
  add_padded("circular crop", {2, 3, 4, 5}, {-1, 2}, {.mode = PadMode::kCircular});
}

// Calls f(offset in the columns, offset in x[N,C,H,W]) for the window elements inside the image. blocks:
// windows per axis.
void for_each_cell(const Shape& x, Size2 blocks, const UnfoldOptions& o,
                   const std::function<void(size_t, size_t)>& f) {
  const Size2 k = o.kernel;
  size_t column = 0;
  for (int64_t plane = 0; plane < x[0] * x[1]; ++plane)
    for (int64_t i = 0; i < k.h; ++i)
      for (int64_t j = 0; j < k.w; ++j)
        for (int64_t p = 0; p < blocks.h; ++p)
          for (int64_t q = 0; q < blocks.w; ++q, ++column) {
            const int64_t h = p * o.stride.h - o.padding.h + i * o.dilation.h;
            const int64_t w = q * o.stride.w - o.padding.w + j * o.dilation.w;
            if (h >= 0 && w >= 0 && h < x[2] && w < x[3]) f(column, size_t((plane * x[2] + h) * x[3] + w));
          }
}

void add_unfolding() {
  struct Case {
    const char* name;
    Shape x;
    Size2 blocks;
    UnfoldOptions o;
  };
  for (const Case& c :
       {Case{"", {2, 3, 4, 5}, {3, 4}, {.kernel = 2}},
        {"one cell", {1, 1, 1, 1}, 1, {.kernel = 1}},
        {"empty", {0, 2, 3, 3}, 2, {.kernel = 2}},
        {"options",
         {2, 2, 6, 5},
         {4, 3},
         {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 2}, .dilation = {2, 1}}},
        {"window beyond the edge", {1, 1, 2, 2}, {1, 5}, {.kernel = {2, 2}, .padding = {0, 2}}}}) {
    const Case a = c;
    const Size2 k = c.o.kernel;
    const auto columns = [=](int64_t n, int64_t channels) {
      return Shape{n, channels * k.h * k.w, a.blocks.h * a.blocks.w};
    };
    add_row({.op = "unfold",
             .variant = c.name,
             .samples = {{in(c.x)}},
             .run = [a](X x) { return unfold(x[0], a.o); },
             .reference =
                 [=](A x) {
                   Array y(columns(x[0].size(0), x[0].size(1)));
                   for_each_cell(x[0].shape, a.blocks, a.o,
                                 [&](size_t to, size_t from) { y.v[to] = x[0].v[from]; });
                   return y;
                 },
             .dtypes = kAllFloats,
             .errors = {ERROR_CASE(unfold(empty({2, 2}), {.kernel = 1}), "[2,2]"),
                        ERROR_CASE(unfold(empty({1, 1, 2, 2}), {.kernel = 3}), "larger", "3"),
                        ERROR_CASE(unfold(empty({1, 1, 2, 2}), {.kernel = 0}), "kernel", "0x0"),
                        ERROR_CASE(unfold(empty({1, 1, 2, 2}, kIntegers), {.kernel = 1}), "i64")}});
    add_row({.op = "fold",
             .variant = c.name,
             .samples = {{in(columns(a.x[0], a.x[1]))}},
             .run =
                 [a](X x) {
                   return fold(x[0], {a.x[2], a.x[3]}, a.o);
                 },
             .reference =
                 [=](A x) {
                   Array y(Shape{x[0].size(0), x[0].size(1) / (k.h * k.w), a.x[2], a.x[3]});
                   for_each_cell(y.shape, a.blocks, a.o,
                                 [&](size_t from, size_t to) { y.v[to] += x[0].v[from]; });
                   return y;
                 },
             .terms = 9,
             .dtypes = kAllFloats,
             .errors = {ERROR_CASE(fold(empty({2, 2}), 2, {.kernel = 1}), "[2,2]"),
                        ERROR_CASE(fold(empty({1, 9, 1}), 2, {.kernel = 3}), "larger", "3"),
                        ERROR_CASE(fold(empty({1, 5, 4}), 3, {.kernel = 2}), "[1,5,4]"),
                        ERROR_CASE(fold(empty({1, 4, 5}), 3, {.kernel = 2}), "[1,4,5]"),
                        ERROR_CASE(fold(empty({1, 4, 5}), 0, {.kernel = 2}), "output size", "0x0"),
                        ERROR_CASE(fold(empty({1, 4, 5}), 3, {.kernel = 2, .stride = 0}), "stride", "0x0"),
                        ERROR_CASE(fold(empty({1, 4, 4}, kIntegers), 3, {.kernel = 2}), "i64")}});
  }
}

void add_shuffles() {
  for (int64_t f : {1, 2, 3}) {
    const Shape few{2, 2 * f * f, 3, 2}, many{2, 2, 3 * f, 2 * f};
    // pixel_shuffle if `apart`, else its inverse.
    const auto move = [=](const Array& x, bool apart) {
      const int64_t C = apart ? x.size(1) / (f * f) : x.size(1), H = apart ? x.size(2) : x.size(2) / f,
                    W = apart ? x.size(3) : x.size(3) / f;
      const Array cells(Shape{x.size(0), C, H * f, W * f}), channels(Shape{x.size(0), C * f * f, H, W});
      Array y = apart ? cells : channels;
      for (int64_t n = 0; n < x.size(0); ++n)
        for (int64_t c = 0; c < C; ++c)
          for (int64_t h = 0; h < H * f; ++h)
            for (int64_t w = 0; w < W * f; ++w) {
              const size_t a = size_t(cells.offset({n, c, h, w}));
              const size_t b = size_t(channels.offset({n, (c * f + h % f) * f + w % f, h / f, w / f}));
              apart ? y.v[a] = x.v[b] : y.v[b] = x.v[a];
            }
      return y;
    };
    add_row({.op = "pixel_shuffle",
             .variant = concat(f),
             .samples = {{in(few)}},
             .run = [f](X x) { return pixel_shuffle(x[0], f); },
             .reference = [=](A x) { return move(x[0], true); },
             .dtypes = kAllFloats,
             .errors = {ERROR_CASE(pixel_shuffle(empty({2, 2}), 1), "[2,2]"),
                        ERROR_CASE(pixel_shuffle(empty({1, 6, 2, 2}), 2), "4", "[1,6,2,2]"),
                        ERROR_CASE(pixel_shuffle(empty({1, 4, 2, 2}), 0), "factor", "0")}});
    add_row({.op = "pixel_unshuffle",
             .variant = concat(f),
             .samples = {{in(many)}},
             .run = [f](X x) { return pixel_unshuffle(x[0], f); },
             .reference = [=](A x) { return move(x[0], false); },
             .dtypes = kAllFloats,
             .errors = {ERROR_CASE(pixel_unshuffle(empty({2, 2}), 1), "[2,2]"),
                        ERROR_CASE(pixel_unshuffle(empty({1, 6, 2, 3}), 2), "2", "[1,6,2,3]"),
                        ERROR_CASE(pixel_unshuffle(empty({1, 4, 2, 2}), -1), "factor", "-1")}});
  }
  // Any number of leading dims, none among them.
  for (const Shape& lead : {Shape{}, Shape{2, 3}, Shape{2, 0, 1}}) {
    const auto of = [&](std::initializer_list<int64_t> last) {
      Shape s = lead;
      for (int64_t n : last) s.push_back(n);
      return s;
    };
    const Shape few = of({8, 3, 2}), many = of({2, 6, 4});
    const auto move = [=](const Array& x, bool apart) {
      Array y(apart ? many : few);
      const Array cells({lead.product(), 2, 6, 4}), channels({lead.product(), 8, 3, 2});
      for (int64_t n = 0; n < lead.product(); ++n)
        for (int64_t c = 0; c < 2; ++c)
          for (int64_t h = 0; h < 6; ++h)
            for (int64_t w = 0; w < 4; ++w) {
              const size_t a = size_t(cells.offset({n, c, h, w}));
              const size_t b = size_t(channels.offset({n, (c * 2 + h % 2) * 2 + w % 2, h / 2, w / 2}));
              apart ? y.v[a] = x.v[b] : y.v[b] = x.v[a];
            }
      return y;
    };
    add_row({.op = "pixel_shuffle",
             .variant = concat("of ", few),
             .samples = {{in(few)}},
             .run = RUN(pixel_shuffle(x[0], 2)),
             .reference = [=](A x) { return move(x[0], true); },
             .dtypes = kAllFloats});
    add_row({.op = "pixel_unshuffle",
             .variant = concat("of ", many),
             .samples = {{in(many)}},
             .run = RUN(pixel_unshuffle(x[0], 2)),
             .reference = [=](A x) { return move(x[0], false); },
             .dtypes = kAllFloats,
             .errors = {ERROR_CASE(pixel_unshuffle(empty({6, 2, 3}), 2), "dim 2", "[6,2,3]")}});
  }
  for (const Shape& s : {Shape{2, 6, 3}, Shape{2, 6, 2, 3}, Shape{0, 6, 2}, Shape{1, 3, 1, 1}})
    add_row({.op = "channel_shuffle",
             .variant = concat(s),
             .samples = {{in(s)}},
             .run = RUN(channel_shuffle(x[0], 3)),
             .reference =
                 [](A x) {
                   Array y(x[0].shape);
                   const int64_t C = y.size(1);
                   int64_t area = 1;
                   for (int d = 2; d < y.dim(); ++d) area *= y.size(d);
                   for (size_t i = 0; i < y.v.size(); ++i) {
                     const int64_t at = int64_t(i) / area, c = at % C;
                     y.v[i] = x[0].v[size_t((at - c + c % 3 * (C / 3) + c / 3) * area + int64_t(i) % area)];
                   }
                   return y;
                 },
             .dtypes = kAllFloats,
             .errors = {ERROR_CASE(channel_shuffle(empty({2, 2}), 1), "[2,2]"),
                        ERROR_CASE(channel_shuffle(empty({1, 5, 2}), 3), "3", "[1,5,2]"),
                        ERROR_CASE(channel_shuffle(empty({1, 4, 2}), 0), "groups", "0")}});
}

// gain * the correlation of x, upsampled by zeros and padded, with the flipped kernel; then every down-th
// pixel. A 1D kernel is applied along both axes.
Array upfirdn_of(const Array& x, const Array& kernel, const Upfirdn2dOptions& o, double gain = 1) {
  const bool line = kernel.dim() == 1;
  const int64_t KH = kernel.size(0), KW = kernel.size(-1);
  const int64_t H = x.size(2) * o.up.h + o.padding.top + o.padding.bottom;
  const int64_t W = x.size(3) * o.up.w + o.padding.left + o.padding.right;
  Array y({x.size(0), x.size(1), (H - KH) / o.down.h + 1, (W - KW) / o.down.w + 1});
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t c = 0; c < x.size(1); ++c) {
      Array u({H, W});
      for (int64_t h = 0; h < x.size(2); ++h)
        for (int64_t w = 0; w < x.size(3); ++w) {
          const int64_t a = h * o.up.h + o.padding.top, b = w * o.up.w + o.padding.left;
          if (a >= 0 && b >= 0 && a < H && b < W) u.at({a, b}) = x.at({n, c, h, w});
        }
      for (int64_t p = 0; p < y.size(2); ++p)
        for (int64_t q = 0; q < y.size(3); ++q)
          for (int64_t i = 0; i < KH; ++i)
            for (int64_t j = 0; j < KW; ++j) {
              const int64_t a = KH - 1 - i, b = KW - 1 - j;
              const double k = line ? kernel.v[size_t(a)] * kernel.v[size_t(b)] : kernel.at({a, b});
              y.at({n, c, p, q}) += gain * k * u.at({p * o.down.h + i, q * o.down.w + j});
            }
    }
  return y;
}

void add_upfirdn() {
  struct Case {
    const char* name;
    Shape x, kernel;
    Upfirdn2dOptions o;
  };
  for (const Case& c :
       {Case{"", {2, 3, 4, 5}, {3, 2}, {}},
        {"one cell", {1, 1, 1, 1}, {1, 1}, {}},
        {"up", {1, 9, 3, 4}, {4, 4}, {.up = 2, .padding = {2, 1, 2, 1}}},
        {"down", {1, 17, 5, 6}, {4, 4}, {.down = 2, .padding = {1, 1, 1, 1}}},
        {"up and down", {1, 2, 5, 4}, {3, 5}, {.up = {2, 3}, .down = {3, 2}, .padding = {3, 1, 0, 2}}},
        {"crop", {1, 2, 5, 6}, {2, 3}, {.up = {1, 2}, .padding = {-1, 2, -2, -1}}},
        {"line", {1, 2, 4, 4}, {3}, {.padding = {1, 1, 1, 1}}}}) {
    const Upfirdn2dOptions o = c.o;
    add_row(
        {.op = "upfirdn2d",
         .variant = c.name,
         .samples = {{in(c.x), in(c.kernel)}},
         .run = [o](X x) { return upfirdn2d(x[0], x[1], o); },
         .reference = [o](A x) { return upfirdn_of(x[0], x[1], o); },
         .terms = 40,
         .dtypes = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16},
         .errors = {ERROR_CASE(upfirdn2d(empty({2, 2}), empty({1, 1})), "[2,2]"),
                    ERROR_CASE(upfirdn2d(empty({1, 1, 2, 2}), empty({1, 1, 1})), "[1,1,1]"),
                    ERROR_CASE(upfirdn2d(empty({1, 1, 2, 2}), empty({3, 3})), "larger", "[1,1,2,2]"),
                    ERROR_CASE(upfirdn2d(empty({1, 1, 2, 2}), empty({1, 1}), {.up = 0}), "at least 1", "0x0"),
                    ERROR_CASE(upfirdn2d(empty({1, 1, 2, 2}), empty({1, 1}, {.dtype = DType::kF64})), "f32",
                               "f64"),
                    ERROR_CASE(upfirdn2d(empty({1, 1, 2, 2}, kIntegers), empty({1, 1}, kIntegers)), "i64"),
                    ERROR_CASE(upfirdn2d(empty({1, 1, 0, 2}), empty({1, 1})), "[1,1,0,2]")}});
  }
  add_row({.op = "upfirdn2d",
           .variant = "no images",
           .samples = {{in({0, 2, 3, 3}), in({2, 2})}},
           .run = RUN(upfirdn2d(x[0], x[1])),
           .reference = [](A) {
             return Array({0, 2, 2, 2});
           }});
  const Shape image{1, 2, 4, 6};
  for (const Shape& k : {Shape{4, 4}, Shape{3, 2}, Shape{4}}) {
    const int64_t h = k[0], w = k.back();
    const std::string variant = concat(k);
    const auto errors = [](Tensor (*op)(const Tensor&, const Tensor&, int64_t)) {
      return std::vector<ErrorCase>{{"dims",
                                     [op] {
                                       op(empty({2, 2}), empty({1, 1}), 2);
                                     },
                                     {"[2,2]"}},
                                    {"factor",
                                     [op] {
                                       op(empty({1, 1, 2, 2}), empty({1, 1}), 0);
                                     },
                                     {"factor", "0"}}};
    };
    add_row({.op = "filter2d",
             .variant = variant,
             .samples = {{in(image), in(k)}},
             .run = RUN(filter2d(x[0], x[1])),
             .reference =
                 [=](A x) {
                   return upfirdn_of(x[0], x[1], {.padding = {w / 2, (w - 1) / 2, h / 2, (h - 1) / 2}});
                 },
             .terms = 40,
             .errors = {ERROR_CASE(filter2d(empty({2, 2}), empty({1, 1})), "[2,2]")}});
    add_row({.op = "upsample2d",
             .variant = variant,
             .samples = {{in(image), in(k)}},
             .run = RUN(upsample2d(x[0], x[1])),
             .reference =
                 [=](A x) {
                   return upfirdn_of(
                       x[0], x[1], {.up = 2, .padding = {(w + 1) / 2, (w - 2) / 2, (h + 1) / 2, (h - 2) / 2}},
                       4);
                 },
             .terms = 80,
             .errors = errors(upsample2d)});
    add_row({.op = "downsample2d",
             .variant = variant,
             .samples = {{in(image), in(k)}},
             .run = RUN(downsample2d(x[0], x[1])),
             .reference =
                 [=](A x) {
                   return upfirdn_of(
                       x[0], x[1],
                       {.down = 2, .padding = {(w - 1) / 2, (w - 2) / 2, (h - 1) / 2, (h - 2) / 2}});
                 },
             .terms = 40,
             .errors = errors(downsample2d)});
  }
}

// The pixel position, of n, of a grid coordinate g, which is in [-1, 1] inside the image.
double in_cells(double g, int64_t n, SamplePadding padding, bool aligned) {
  double at = aligned ? (g + 1) / 2 * double(n - 1) : ((g + 1) * double(n) - 1) / 2;
  const double low = aligned ? 0 : -0.5, high = aligned ? double(n - 1) : double(n) - 0.5;
  if (padding == SamplePadding::kReflection) {
    while (at < low || at > high) at = at < low ? 2 * low - at : 2 * high - at;
  }
  return padding == SamplePadding::kZeros ? at : std::clamp(at, 0.0, double(n - 1));
}

Array sampled(const Array& x, const Array& grid, const GridSampleOptions& o) {
  const int64_t P = grid.size(1), Q = grid.size(2), H = x.size(2), W = x.size(3);
  Array y({x.size(0), x.size(1), P, Q});
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t p = 0; p < P; ++p)
      for (int64_t q = 0; q < Q; ++q) {
        double v = in_cells(grid.at({n, p, q, 1}), H, o.padding, o.align_corners);
        double u = in_cells(grid.at({n, p, q, 0}), W, o.padding, o.align_corners);
        if (o.mode == SampleMode::kNearest) v = std::nearbyint(v), u = std::nearbyint(u);
        for (int64_t h = 0; h < H; ++h)
          for (int64_t w = 0; w < W; ++w) {
            const double weight =
                std::max(0.0, 1 - std::abs(v - double(h))) * std::max(0.0, 1 - std::abs(u - double(w)));
            for (int64_t c = 0; c < x.size(1); ++c) y.at({n, c, p, q}) += weight * x.at({n, c, h, w});
          }
      }
  return y;
}

// The pixel that the padding puts at position i of an axis of n pixels; -1: zero.
int64_t cell_for(int64_t i, int64_t n, SamplePadding padding, bool aligned) {
  if (padding == SamplePadding::kZeros) return i < 0 || i >= n ? -1 : i;
  if (padding == SamplePadding::kReflection && !(aligned && n == 1))
    while (i < 0 || i >= n) i = i < 0 ? -i - !aligned : 2 * n - i - (aligned ? 2 : 1);
  return std::clamp<int64_t>(i, 0, n - 1);
}

Array sampled_cubically(const Array& x, const Array& grid, const GridSampleOptions& o) {
  const int64_t P = grid.size(1), Q = grid.size(2), H = x.size(2), W = x.size(3);
  // Keys' kernel with a = -0.75.
  const auto weight = [](double d) {
    constexpr double a = -0.75;
    d = std::abs(d);
    return d <= 1  ? (a + 2) * d * d * d - (a + 3) * d * d + 1
           : d < 2 ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a
                   : 0;
  };
  Array y({x.size(0), x.size(1), P, Q});
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t p = 0; p < P; ++p)
      for (int64_t q = 0; q < Q; ++q) {
        const double v = in_cells(grid.at({n, p, q, 1}), H, SamplePadding::kZeros, o.align_corners);
        const double u = in_cells(grid.at({n, p, q, 0}), W, SamplePadding::kZeros, o.align_corners);
        const int64_t top = int64_t(std::floor(v)) - 1, left = int64_t(std::floor(u)) - 1;
        for (int64_t i = top; i < top + 4; ++i)
          for (int64_t j = left; j < left + 4; ++j) {
            const int64_t h = cell_for(i, H, o.padding, o.align_corners);
            const int64_t w = cell_for(j, W, o.padding, o.align_corners);
            if (h < 0 || w < 0) continue;
            for (int64_t c = 0; c < x.size(1); ++c)
              y.at({n, c, p, q}) += weight(v - double(i)) * weight(u - double(j)) * x.at({n, c, h, w});
          }
      }
  return y;
}

void add_sampling() {
  // Positions at which the gradient does not jump; some are outside the image.
  const std::vector<double> at = {-0.83, 0.31, 0.44, -0.55, 0.11,  0.72,
                                  -1.37, 0.9,  1.61, -1.22, -0.21, -0.08};
  const auto refuses = [](const char* what, const Shape& x, const Shape& grid, std::vector<std::string> says,
                          TensorOptions t = {}) {
    return ErrorCase{what, [=] { grid_sample(empty(x, t), empty(grid)); }, std::move(says)};
  };
  for (SampleMode mode : {SampleMode::kBilinear, SampleMode::kNearest, SampleMode::kBicubic})
    for (SamplePadding padding : {SamplePadding::kZeros, SamplePadding::kBorder, SamplePadding::kReflection})
      for (bool aligned : {false, true}) {
        const GridSampleOptions o{.mode = mode, .padding = padding, .align_corners = aligned};
        Input grid = in({2, 1, 3, 2});
        grid.values = at;
        add_row({.op = "grid_sample",
                 .variant = concat(mode == SampleMode::kNearest    ? "nearest "
                                   : mode == SampleMode::kBilinear ? "bilinear "
                                                                   : "bicubic ",
                                   int(padding), aligned ? " aligned" : ""),
                 .samples = {{in({2, 2, 4, 5}), grid}},
                 .run = [o](X x) { return grid_sample(x[0], x[1], o); },
                 .reference =
                     [o](A x) {
                       return o.mode == SampleMode::kBicubic ? sampled_cubically(x[0], x[1], o)
                                                             : sampled(x[0], x[1], o);
                     },
                 .terms = mode == SampleMode::kBicubic ? 160.0 : 40.0,
                 .errors = {refuses("dims", {2, 2}, {2, 1, 1, 2}, {"[2,2]", "[2,1,1,2]"}),
                            refuses("grid", {2, 1, 2, 2}, {2, 1, 1, 3}, {"[2,1,1,3]"}),
                            refuses("batch", {2, 1, 2, 2}, {3, 1, 1, 2}, {"[3,1,1,2]"}),
                            refuses("no cells", {2, 1, 0, 2}, {2, 1, 1, 2}, {"no pixels", "[2,1,0,2]"}),
                            refuses("dtypes", {2, 1, 2, 2}, {2, 1, 1, 2}, {"f64", "f32"},
                                    {.dtype = DType::kF64})}});
      }
  add_row({.op = "grid_sample",
           .variant = "empty",
           .samples = {{in({0, 3, 4, 5}), in({0, 1, 3, 2})}, {in({1, 1, 1, 1}), in({1, 0, 1, 2})}},
           .run = RUN(grid_sample(x[0], x[1])),
           .reference = [](A x) {
             return Array({x[0].size(0), x[0].size(1), x[1].size(1), x[1].size(2)});
           }});
  for (bool aligned : {false, true})
    for (const Size2& size : {Size2(3, 4), Size2(1, 2)})
      add_row({.op = "affine_grid",
               .variant = concat(size, aligned ? " aligned" : ""),
               .samples = {{in({2, 2, 3})}, {in({0, 2, 3})}},
               .run = RUN(affine_grid(x[0], size, {.align_corners = aligned})),
               .reference =
                   [=](A x) {
                     const auto center = [&](int64_t i, int64_t n) {
                       return aligned ? (n == 1 ? 0 : -1 + 2 * double(i) / double(n - 1))
                                      : (2 * double(i) + 1) / double(n) - 1;
                     };
                     Array y({x[0].size(0), size.h, size.w, 2});
                     for (int64_t n = 0; n < x[0].size(0); ++n)
                       for (int64_t p = 0; p < size.h; ++p)
                         for (int64_t q = 0; q < size.w; ++q)
                           for (int64_t k = 0; k < 2; ++k)
                             y.at({n, p, q, k}) = x[0].at({n, k, 0}) * center(q, size.w) +
                                                  x[0].at({n, k, 1}) * center(p, size.h) + x[0].at({n, k, 2});
                     return y;
                   },
               .terms = 20,
               .errors = {ERROR_CASE(affine_grid(empty({2, 3, 3}), 2), "[2,3,3]"),
                          ERROR_CASE(affine_grid(empty({2, 2, 3}), 0), "size", "0x0"),
                          ERROR_CASE(affine_grid(empty({2, 2, 3}, kIntegers), 2), "i64")}});
}

}  // namespace

static const bool added = [] {
  add_interpolate();
  add_resample();
  add_pads();
  add_unfolding();
  add_shuffles();
  add_upfirdn();
  add_sampling();
  return true;
}();

}  // namespace gradus::optest
