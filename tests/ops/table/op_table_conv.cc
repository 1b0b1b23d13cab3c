// Rows of the op test table for 1D, 2D and 3D convolutions: forward, gradients of input and weight, and
// transposed. The reference of all is one loop over the products y[iy] += x[ix] * w[iw]. Each row is tested
// against its f64 reference, its gradients against difference quotients; op_table.h explains the fields.
#include <stdexcept>

#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

using raw::ConvGeometry;

// Calls f(index) for every index below the sizes, row-major.
void for_each_index(const Dims& sizes, const std::function<void(const Dims&)>& f) {
  Dims at = Dims::filled(sizes.size(), 0);
  for (int64_t i = 0; i < sizes.product(); ++i) {
    f(at);
    for (int d = sizes.size() - 1; d >= 0 && ++at[d] == sizes[d]; --d) at[d] = 0;
  }
}

size_t offset_of(const Shape& shape, const Dims& at) {
  int64_t o = 0;
  for (int d = 0; d < shape.size(); ++d) o = o * shape[d] + at[d];
  return size_t(o);
}

Shape result_shape(const Shape& x, const Shape& w, const ConvGeometry& g) {
  Shape y{x[0], w[0]};
  for (int d = 0; d < g.rank(); ++d)
    y.push_back((x[d + 2] + 2 * g.padding[d] - g.dilation[d] * (w[d + 2] - 1) - 1) / g.stride[d] + 1);
  return y;
}

// Calls f(offset in y, offset in x, offset in w) for every product of the convolution. 1D and 2D shapes get
// leading spatial dims of size 1.
template <class F>
void for_each_product(const Shape& xs, const Shape& ws, const Shape& ys, const ConvGeometry& g, F f) {
  if (double(ys.product()) * double(ws.product()) > 0x1p25 * double(ws[0]))
    throw std::length_error("for_each_product: too many products to wait for");
  const auto volume = [&](const Dims& sizes, int from, int64_t fill) {
    Dims v(std::span(sizes.begin() + from, sizes.end()));
    while (v.size() < 3) v.insert(0, fill);
    return v;
  };
  const Dims in = volume(xs, 2, 1), taps = volume(ws, 2, 1), out = volume(ys, 2, 1),
             stride = volume(g.stride, 0, 1), padding = volume(g.padding, 0, 0),
             dilation = volume(g.dilation, 0, 1);
  const auto inside = [&](int d, int64_t o, int64_t k, int64_t& at) {
    at = o * stride[d] - padding[d] + k * dilation[d];
    return at >= 0 && at < in[d];
  };
  size_t iy = 0;
  for (int64_t n = 0; n < ys[0]; ++n)
    for (int64_t o = 0; o < ys[1]; ++o)
      for (int64_t p = 0; p < out[0]; ++p)
        for (int64_t q = 0; q < out[1]; ++q)
          for (int64_t r = 0; r < out[2]; ++r, ++iy)
            for (int64_t c = 0; c < ws[1]; ++c)
              for (int64_t i = 0, a = 0, b = 0, d = 0; i < taps[0]; ++i)
                for (int64_t j = 0; j < taps[1]; ++j)
                  for (int64_t k = 0; k < taps[2]; ++k) {
                    if (!inside(0, p, i, a) || !inside(1, q, j, b) || !inside(2, r, k, d)) continue;
                    const int64_t channel = n * xs[1] + o / (ws[0] / g.groups) * ws[1] + c;
                    f(iy, size_t(((channel * in[0] + a) * in[1] + b) * in[2] + d),
                      size_t((((o * ws[1] + c) * taps[0] + i) * taps[1] + j) * taps[2] + k));
                  }
}

void add_bias(Array& y, const Array& bias) {
  int64_t area = 1;
  for (int d = 2; d < y.dim(); ++d) area *= y.shape[d];
  for (size_t i = 0; i < y.v.size(); ++i) y.v[i] += bias.v[i / size_t(area) % bias.v.size()];
}

Reference convolution(const ConvGeometry& g) {
  return [=](A x) {
    Array y(result_shape(x[0].shape, x[1].shape, g));
    for_each_product(x[0].shape, x[1].shape, y.shape, g,
                     [&](size_t iy, size_t ix, size_t iw) { y.v[iy] += x[0].v[ix] * x[1].v[iw]; });
    if (x.size() > 2) add_bias(y, x[2]);
    return y;
  };
}

// Products per element of the result.
double taps(const Shape& w) { return double(w.product() / w[0]); }

template <class Options> struct ConvCase {
  const char* name;
  Shape x, w;  // [N, C, ...], [out channels, C / groups, ...]; transposed: w [C, out channels / groups, ...]
  Options options;
};

TensorOptions of(DType t) { return {t, kCPU}; }
const TensorOptions kOther{DType::kF32, Device{DeviceType::kCPU, 1}};

// The errors that all convolutions document; `run` convolves x, w and bias, `d` the dims beyond [N,C].
template <class Options>
std::vector<ErrorCase> conv_errors(Tensor (*run)(const Tensor&, const Tensor&, const Tensor&, const Options&),
                                   int d) {
  const auto shape = [d](int64_t n, int64_t c, int64_t size) {
    Shape s{n, c};
    for (int i = 0; i < d; ++i) s.push_back(size);
    return s;
  };
  const Shape x = shape(1, 4, 5), w = shape(2, 4, 3);
  const auto with = [=](const Shape& xs, const Shape& ws, const Options& o) {
    return [=] { run(empty(xs), empty(ws), {}, o); };
  };
  return {
      {"channels", with(shape(1, 3, 5), w, {}), {"4 input channels", "x has 3", to_string(shape(1, 3, 5))}},
      {"filter larger than the image", with(shape(1, 4, 2), w, {}), {"larger", to_string(shape(1, 4, 2))}},
      {"dims", with({5}, w, {}), {"x must be", "[5]"}},
      {"dims of the weight", with(x, {4}, {}), {"weight must be", "[4]"}},
      {"no taps", with(x, shape(2, 4, 0), {}), {"must not be empty"}},
      {"groups of filters", with(x, shape(3, 2, 3), {.groups = 2}), {"3 do not divide into 2 groups"}},
      {"groups of channels",
       with(x, shape(3, 1, 3), {.groups = 3}),
       {"3 input channels", "x has 4", "3 groups"}},
      {"groups", with(x, w, {.groups = 0}), {"groups", "got 0"}},
      {"stride", with(x, w, {.stride = 0}), {"stride must be at least 1, got 0"}},
      {"padding", with(x, w, {.padding = -1}), {"padding must be at least 0, got -1"}},
      {"dilation", with(x, w, {.dilation = 0}), {"dilation must be at least 1, got 0"}},
      {"same_padding and stride", with(x, w, {.stride = 2, .same_padding = true}), {"same_padding", "got 2"}},
      {"same_padding and padding",
       with(x, w, {.padding = 2, .same_padding = true}),
       {"same_padding", "padding of 2"}},
      ERROR_CASE(run(empty(x), empty(w), empty({3}), {}), "bias must have 2 elements", "f32[3]"),
      ERROR_CASE(run(empty(x), empty(w, of(DType::kF64)), {}, {}), "weight is f64", "f32"),
      ERROR_CASE(run(empty(x, of(DType::kI64)), empty(w, of(DType::kI64)), {}, {}), "i64"),
      ERROR_CASE(run(empty(x), empty(w, kOther), {}, {}), "cpu:1"),
  };
}

template <class Options>
void add_forward(const char* op, Tensor (*run)(const Tensor&, const Tensor&, const Tensor&, const Options&),
                 const ConvCase<Options>& c, bool with_errors) {
  const Options o = c.options;
  add_row({.op = op,
           .variant = c.name,
           .samples = {{in(c.x), in(c.w), in({c.w[0]})}},
           .run = RUN(run(x[0], x[1], x[2], o)),
           .reference = convolution(o),
           .terms = taps(c.w) + 1,
           .dtypes = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16},
           .errors = with_errors ? conv_errors(run, c.x.size() - 2) : std::vector<ErrorCase>()});
  add_row({.op = op,
           .variant = std::string(c.name) + " without bias",
           .samples = {{in(c.x), in(c.w)}},
           .run = RUN(run(x[0], x[1], {}, o)),
           .reference = convolution(o),
           .terms = taps(c.w)});
}

void add_rectified(const ConvCase<Conv2dFuncOptions>& c, bool with_errors) {
  const Conv2dFuncOptions o = c.options;
  const auto reference = [=](A x) {
    Array y = convolution(o)(x);
    for (double& v : y.v) v = v > 0 ? v : 0;
    return y;
  };
  add_row({.op = "conv2d_relu",
           .variant = c.name,
           .samples = {{in(c.x), in(c.w), in({c.w[0]})}},
           .run = RUN(conv2d_relu(x[0], x[1], x[2], o)),
           .reference = reference,
           .terms = taps(c.w) + 1,
           .dtypes = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16},
           .errors = with_errors ? conv_errors(&conv2d_relu, 2) : std::vector<ErrorCase>()});
  add_row({.op = "conv2d_relu",
           .variant = std::string(c.name) + " without bias",
           .samples = {{in(c.x), in(c.w)}},
           .run = RUN(conv2d_relu(x[0], x[1], {}, o)),
           .reference = reference,
           .terms = taps(c.w)});
}

template <class Options>
void add_gradients(const char* input_op, const char* weight_op,
                   Tensor (*input_grad)(const Tensor&, const Tensor&, const Shape&, const Options&),
                   std::pair<Tensor, Tensor> (*weight_grad)(const Tensor&, const Tensor&, const Shape&, bool,
                                                            const Options&),
                   const ConvCase<Options>& c, bool with_errors) {
  const Options o = c.options;
  const ConvGeometry g = o;
  const Shape xs = c.x, ws = c.w, ys = result_shape(xs, ws, g);
  // Shapes of x and w for tensors whose batch size and channels may differ from the case's.
  const auto image = [=](const Shape& dy, const Shape& w) {
    Shape x = xs;
    x[0] = dy[0], x[1] = w[1] * g.groups;
    return x;
  };
  const auto filters = [=](const Shape& dy, const Shape& x) {
    Shape w = ws;
    w[0] = dy[1], w[1] = x[1] / g.groups;
    return w;
  };
  std::vector<ErrorCase> input_errors, weight_errors;
  if (with_errors) {
    Shape other = ys, more = ws;
    ++other[2], more[1] += 1;
    input_errors = {
        ERROR_CASE(input_grad(empty(other), empty(ws), xs, o), "dy must be " + to_string(ys),
                   to_string(other)),
        ERROR_CASE(input_grad(empty(ys), empty(more), xs, o), to_string(more)),
        {"groups",
         [=] {
           auto p = o;
           p.groups = 0;
           input_grad(empty(ys), empty(ws), xs, p);
         },
         {"groups", "got 0"}},
        ERROR_CASE(input_grad(empty(ys), empty(ws, of(DType::kF64)), xs, o), "f64"),
        ERROR_CASE(input_grad(empty(ys), empty(ws, kOther), xs, o), "cpu:1"),
    };
    weight_errors = {
        ERROR_CASE(weight_grad(empty(other), empty(xs), ws, true, o), "dy must be " + to_string(ys),
                   to_string(other)),
        ERROR_CASE(weight_grad(empty(ys), empty(xs), more, true, o), to_string(more)),
        {"groups",
         [=] {
           auto p = o;
           p.groups = 0;
           weight_grad(empty(ys), empty(xs), ws, true, p);
         },
         {"groups", "got 0"}},
        ERROR_CASE(weight_grad(empty(ys), empty(xs, of(DType::kF64)), ws, true, o), "f64"),
        ERROR_CASE(weight_grad(empty(ys), empty(xs, kOther), ws, true, o), "cpu:1"),
    };
  }
  add_row({.op = input_op,
           .variant = c.name,
           .samples = {{in(ys), in(ws)}},
           .run = RUN(input_grad(x[0], x[1], image(x[0].shape(), x[1].shape()), o)),
           .reference =
               [=](A x) {
                 Array dx(image(x[0].shape, x[1].shape));
                 for_each_product(dx.shape, x[1].shape, x[0].shape, g, [&](size_t iy, size_t ix, size_t iw) {
                   dx.v[ix] += x[0].v[iy] * x[1].v[iw];
                 });
                 return dx;
               },
           .terms = double(ws[0] / o.groups) * taps(ws) / double(ws[1]),
           .errors = input_errors});
  add_row({.op = weight_op,
           .variant = c.name,
           .samples = {{in(ys), in(xs)}},
           .run = RUN(weight_grad(x[0], x[1], filters(x[0].shape(), x[1].shape()), false, o).first),
           .reference =
               [=](A x) {
                 Array dw(filters(x[0].shape, x[1].shape));
                 for_each_product(x[1].shape, dw.shape, x[0].shape, g, [&](size_t iy, size_t ix, size_t iw) {
                   dw.v[iw] += x[0].v[iy] * x[1].v[ix];
                 });
                 return dw;
               },
           .terms = double(ys.product()) / double(ys[1]),
           .errors = weight_errors});
}

void add_images() {
  const ConvCase<Conv2dFuncOptions> cases[] = {
      {"", {2, 3, 5, 4}, {4, 3, 3, 3}, {}},
      {"padding", {2, 2, 4, 4}, {3, 2, 3, 3}, {.padding = 1}},
      {"stride", {1, 2, 6, 5}, {3, 2, 3, 3}, {.stride = 2, .padding = 1}},
      {"stride leaves a rest", {1, 2, 6, 6}, {2, 2, 3, 3}, {.stride = 2}},
      {"dilation", {1, 2, 6, 6}, {2, 2, 3, 3}, {.padding = 2, .dilation = 2}},
      {"groups", {2, 4, 3, 4}, {6, 2, 3, 3}, {.padding = 1, .groups = 2}},
      {"depthwise", {1, 4, 5, 4}, {4, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 4}},
      {"depthwise dilated", {1, 4, 6, 5}, {8, 1, 3, 2}, {.padding = 2, .dilation = 2, .groups = 4}},
      {"1x1", {2, 5, 3, 2}, {3, 5, 1, 1}, {}},
      {"one of all", {1, 1, 1, 1}, {1, 1, 1, 1}, {}},
      {"no images", {0, 2, 4, 4}, {3, 2, 3, 3}, {}},
      {"uneven", {1, 2, 4, 7}, {3, 2, 2, 5}, {.stride = {2, 1}, .padding = {1, 2}}},
      {"one channel", {2, 1, 6, 6}, {2, 1, 3, 3}, {}},
      {"large", {2, 17, 13, 11}, {20, 17, 3, 3}, {.padding = 1}},
      {"large stride", {2, 16, 15, 15}, {24, 16, 3, 3}, {.stride = 2, .padding = 1}},
      {"large depthwise", {1, 24, 8, 9}, {24, 1, 3, 3}, {.padding = 1, .groups = 24}},
      {"large 1x1", {2, 33, 9, 9}, {34, 33, 1, 1}, {}},
      {"large one channel", {2, 1, 28, 28}, {32, 1, 3, 3}, {}},
  };
  bool first = true;
  for (const auto& c : cases) {
    add_forward("conv2d", &conv2d, c, first);
    if (c.x.product() < 1000) add_rectified(c, first);  // the kernels are conv2d's
    add_gradients("conv2d_input_grad", "conv2d_weight_grad", &conv2d_input_grad, &conv2d_weight_grad, c,
                  first);
    first = false;
  }
}

void add_volumes() {
  const ConvCase<Conv3dFuncOptions> cases[] = {
      {"", {2, 3, 3, 4, 3}, {4, 3, 2, 3, 2}, {}},
      {"padding", {1, 2, 3, 2, 4}, {3, 2, 3, 3, 3}, {.padding = 1}},
      {"stride", {1, 2, 5, 4, 6}, {2, 2, 2, 3, 3}, {.stride = {2, 1, 3}, .padding = {0, 1, 2}}},
      {"dilation", {1, 1, 5, 6, 4}, {2, 1, 2, 3, 2}, {.padding = 1, .dilation = {3, 2, 1}}},
      {"groups", {1, 4, 2, 3, 3}, {6, 2, 2, 2, 2}, {.groups = 2}},
      {"depthwise", {1, 3, 3, 3, 2}, {3, 1, 2, 2, 2}, {.padding = 1, .groups = 3}},
      {"one of all", {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {}},
      {"no volumes", {0, 2, 3, 3, 3}, {3, 2, 2, 2, 2}, {}},
      {"large", {1, 17, 5, 6, 7}, {18, 17, 3, 3, 3}, {.stride = 2, .padding = 1}},
  };
  bool first = true;
  for (const auto& c : cases) {
    add_forward("conv3d", &conv3d, c, first);
    add_gradients("conv3d_input_grad", "conv3d_weight_grad", &conv3d_input_grad, &conv3d_weight_grad, c,
                  first);
    first = false;
  }
}

void add_signals() {
  const ConvCase<Conv1dFuncOptions> cases[] = {
      {"", {2, 3, 7}, {4, 3, 3}, {}},
      {"options", {1, 4, 11}, {6, 2, 3}, {.stride = 2, .padding = 3, .dilation = 2, .groups = 2}},
      {"depthwise", {2, 3, 6}, {3, 1, 3}, {.padding = 1, .groups = 3}},
      {"one of all", {1, 1, 1}, {1, 1, 1}, {}},
      {"no signals", {0, 2, 4}, {3, 2, 3}, {}},
      {"large", {2, 17, 40}, {32, 17, 5}, {.padding = 2}},
  };
  bool first = true;
  for (const auto& c : cases) {
    add_forward("conv1d", &conv1d, c, first);
    first = false;
  }
}

Array reshaped(Array x, const Shape& shape) {
  x.shape = shape;
  return x;
}

// A tensor function of x, w and bias.
using Run = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>;

// One signal, image or volume without a batch dim.
void add_without_batch(const char* op, const Run& run, const Shape& x, const Shape& w,
                       const ConvGeometry& g) {
  add_row({.op = op,
           .variant = "without batch",
           .samples = {{in(x), in(w), in({w[0]})}},
           .run = [=](X v) { return run(v[0], v[1], v[2]); },
           .reference =
               [=](A v) {
                 Shape batch = v[0].shape;
                 batch.insert(0, 1);
                 Array y = convolution(g)({reshaped(v[0], batch), v[1], v[2]});
                 y.shape.erase(0);
                 return y;
               },
           .terms = taps(w) + 1});
}

// same_padding keeps the size: dilation * (kernel - 1) zeros, half on each side, an odd one at the end. The
// reference appends the odd one to x.
void add_same_padding(const char* op, const Run& run, const Shape& x, const Shape& w, ConvGeometry g) {
  Dims odd;
  for (int d = 0; d < g.rank(); ++d) {
    const int64_t zeros = g.dilation[d] * (w[d + 2] - 1);
    g.padding[d] = zeros / 2, odd.push_back(zeros % 2);
  }
  add_row({.op = op,
           .variant = "same padding " + to_string(w),
           .samples = {{in(x), in(w), in({w[0]})}},
           .run = [=](X v) { return run(v[0], v[1], v[2]); },
           .reference =
               [=](A v) {
                 const Shape& x = v[0].shape;
                 Shape padded = x;
                 for (int d = 0; d < odd.size(); ++d) padded[d + 2] += odd[d];
                 Array p(padded);
                 for_each_index(
                     x, [&](const Dims& at) { p.v[offset_of(padded, at)] = v[0].v[offset_of(x, at)]; });
                 return convolution(g)({p, v[1], v[2]});
               },
           .terms = taps(w) + 1});
}

void add_special_inputs() {
  const Run one = [](const Tensor& x, const Tensor& w, const Tensor& b) { return conv1d(x, w, b); };
  const Run two = [](const Tensor& x, const Tensor& w, const Tensor& b) { return conv2d(x, w, b); };
  const Run three = [](const Tensor& x, const Tensor& w, const Tensor& b) { return conv3d(x, w, b); };
  add_without_batch("conv1d", one, {2, 6}, {3, 2, 3}, Conv1dFuncOptions());
  add_without_batch("conv2d", two, {2, 4, 5}, {3, 2, 3, 2}, Conv2dFuncOptions());
  add_without_batch("conv3d", three, {2, 3, 4, 3}, {3, 2, 2, 2, 3}, Conv3dFuncOptions());

  const Conv1dFuncOptions same1{.dilation = 3, .same_padding = true};
  const Conv2dFuncOptions same2{.dilation = {1, 3}, .same_padding = true};
  const Conv3dFuncOptions same3{.same_padding = true};
  const Run keep1 = [=](const Tensor& x, const Tensor& w, const Tensor& b) { return conv1d(x, w, b, same1); };
  const Run keep2 = [=](const Tensor& x, const Tensor& w, const Tensor& b) { return conv2d(x, w, b, same2); };
  const Run keep3 = [=](const Tensor& x, const Tensor& w, const Tensor& b) { return conv3d(x, w, b, same3); };
  // Padding "valid" is no padding.
  const Run valid1 = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return conv1d(x, w, b, {.padding = kValidPadding});
  };
  const Run valid2 = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return conv2d(x, w, b, {.padding = kValidPadding});
  };
  const Run valid3 = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return conv3d(x, w, b, {.padding = kValidPadding});
  };
  add_without_batch("conv1d", valid1, {2, 5}, {3, 2, 3}, Conv1dFuncOptions());
  add_without_batch("conv2d", valid2, {2, 5, 4}, {3, 2, 3, 2}, Conv2dFuncOptions());
  add_without_batch("conv3d", valid3, {2, 3, 4, 5}, {3, 2, 2, 2, 3}, Conv3dFuncOptions());
  add_same_padding("conv1d", keep1, {2, 2, 6}, {3, 2, 4}, same1);
  add_same_padding("conv2d", keep2, {1, 2, 5, 4}, {3, 2, 3, 2}, same2);
  add_same_padding("conv2d", keep2, {1, 2, 5, 4}, {3, 2, 4, 3}, same2);
  add_same_padding("conv3d", keep3, {1, 2, 3, 4, 3}, {2, 2, 2, 3, 1}, same3);
}

template <class Options>
std::vector<ErrorCase> transpose_errors(Tensor (*run)(const Tensor&, const Tensor&, const Tensor&,
                                                      const Options&),
                                        int d) {
  const auto shape = [d](int64_t n, int64_t c, int64_t size) {
    Shape s{n, c};
    for (int i = 0; i < d; ++i) s.push_back(size);
    return s;
  };
  const Shape x = shape(1, 4, 5), w = shape(4, 2, 3);
  const auto with = [=](const Shape& xs, const Shape& ws, const Options& o) {
    return [=] { run(empty(xs), empty(ws), {}, o); };
  };
  return {
      {"channels", with(shape(1, 3, 5), w, {}), {"takes 4 channels", "x has 3"}},
      {"dims", with({5}, w, {}), {"x must have", "[5]"}},
      {"dims of the weight", with(x, {4}, {}), {"weight must have", "[4]"}},
      {"no taps", with(x, shape(4, 2, 0), {}), {"weight", to_string(shape(4, 2, 0))}},
      {"groups of channels", with(x, w, {.groups = 3}), {"4 do not divide into 3 groups"}},
      {"groups", with(x, w, {.groups = 0}), {"groups", "got 0"}},
      {"stride", with(x, w, {.stride = 0}), {"stride must be at least 1, got 0"}},
      {"padding", with(x, w, {.padding = -1}), {"padding must be at least 0, got -1"}},
      {"dilation", with(x, w, {.dilation = 0}), {"dilation must be at least 1, got 0"}},
      {"output_padding",
       with(x, w, {.stride = 2, .output_padding = 2}),
       {"output_padding", "got 2 with stride 2"}},
      {"output_padding below 0", with(x, w, {.output_padding = -1}), {"output_padding", "got -1"}},
      {"nothing left", with(x, w, {.padding = 4}), {"a result of size -1"}},
      ERROR_CASE(run(empty(x), empty(w), empty({3}), {}), "bias must have 2 elements", "f32[3]"),
      ERROR_CASE(run(empty(x), empty(w), empty({2}, of(DType::kF64)), {}), "bias is f64"),
      ERROR_CASE(run(empty(x), empty(w), empty({2}, kOther), {}), "bias", "cpu:1"),
      ERROR_CASE(run(empty(x), empty(w, of(DType::kF64)), {}, {}), "weight is f64"),
      ERROR_CASE(run(empty(x, of(DType::kI64)), empty(w, of(DType::kI64)), {}, {}), "i64"),
      ERROR_CASE(run(empty(x), empty(w, kOther), {}, {}), "cpu:1"),
  };
}

// plain(options): the convolution whose input gradient the transposed convolution computes.
template <class Options, class Plain>
void add_transposed(const char* op,
                    Tensor (*run)(const Tensor&, const Tensor&, const Tensor&, const Options&),
                    std::initializer_list<ConvCase<Options>> cases, Plain plain) {
  bool first = true;
  for (const auto& c : cases) {
    const Options o = c.options;
    const ConvGeometry g = plain(o);
    const bool batched = c.x.size() == g.rank() + 2;
    const Shape ws = c.w;
    const std::vector<int64_t> extra = plain.output_padding(o);
    const auto reference = [=](A x) {
      Shape xs = x[0].shape;
      if (!batched) xs.insert(0, 1);
      const Shape& ws = x[1].shape;
      Shape ys{xs[0], ws[1] * g.groups};
      for (int d = 0; d < g.rank(); ++d)
        ys.push_back((xs[d + 2] - 1) * g.stride[d] - 2 * g.padding[d] + g.dilation[d] * (ws[d + 2] - 1) +
                     extra[size_t(d)] + 1);
      Array y(ys);
      for_each_product(ys, ws, xs, g,
                       [&](size_t iy, size_t ix, size_t iw) { y.v[ix] += x[0].v[iy] * x[1].v[iw]; });
      if (x.size() > 2) add_bias(y, x[2]);
      if (!batched) y.shape.erase(0);
      return y;
    };
    const double terms = double(ws[0] / g.groups) * taps(ws) / double(ws[1]) + 1;
    add_row({.op = op,
             .variant = c.name,
             .samples = {{in(c.x), in(ws), in({ws[1] * g.groups})}},
             .run = RUN(run(x[0], x[1], x[2], o)),
             .reference = reference,
             .terms = terms,
             .dtypes = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16},
             .errors = first ? transpose_errors(run, g.rank()) : std::vector<ErrorCase>()});
    add_row({.op = op,
             .variant = std::string(c.name) + " without bias",
             .samples = {{in(c.x), in(ws)}},
             .run = RUN(run(x[0], x[1], {}, o)),
             .reference = reference,
             .terms = terms});
    first = false;
  }
}

struct Plain1 {
  ConvGeometry operator()(const ConvTranspose1dFuncOptions& o) const {
    return Conv1dFuncOptions{
        .stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups};
  }
  std::vector<int64_t> output_padding(const ConvTranspose1dFuncOptions& o) const {
    return {o.output_padding};
  }
};
struct Plain2 {
  ConvGeometry operator()(const ConvTranspose2dFuncOptions& o) const {
    return Conv2dFuncOptions{
        .stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups};
  }
  std::vector<int64_t> output_padding(const ConvTranspose2dFuncOptions& o) const {
    return {o.output_padding.h, o.output_padding.w};
  }
};
struct Plain3 {
  ConvGeometry operator()(const ConvTranspose3dFuncOptions& o) const {
    return Conv3dFuncOptions{
        .stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups};
  }
  std::vector<int64_t> output_padding(const ConvTranspose3dFuncOptions& o) const {
    return {o.output_padding.d, o.output_padding.h, o.output_padding.w};
  }
};

void add_all_transposed() {
  add_transposed<ConvTranspose1dFuncOptions>(
      "conv_transpose1d", &conv_transpose1d,
      {{"", {2, 3, 4}, {3, 2, 3}, {}},
       {"options",
        {1, 4, 5},
        {4, 3, 3},
        {.stride = 3, .padding = 2, .output_padding = 1, .dilation = 2, .groups = 2}},
       {"one of all", {1, 1, 1}, {1, 1, 1}, {}},
       {"no signals", {0, 2, 3}, {2, 1, 2}, {}},
       {"without batch", {2, 4}, {2, 3, 2}, {.stride = 2}}},
      Plain1());
  add_transposed<ConvTranspose2dFuncOptions>(
      "conv_transpose2d", &conv_transpose2d,
      {{"", {2, 3, 3, 4}, {3, 2, 3, 3}, {}},
       {"4x4 of stride 2", {1, 3, 3, 3}, {3, 2, 4, 4}, {.stride = 2, .padding = 1}},
       {"uneven",
        {1, 2, 3, 2},
        {2, 3, 2, 3},
        {.stride = {3, 2}, .padding = {1, 0}, .output_padding = {2, 1}, .dilation = {1, 2}}},
       {"output padding of whole strides",
        {1, 2, 3, 3},
        {2, 2, 2, 2},
        {.stride = {1, 2}, .padding = {1, 1}, .output_padding = {1, 3}, .dilation = {2, 4}}},
       {"groups", {1, 4, 3, 3}, {4, 3, 2, 2}, {.stride = 2, .groups = 2}},
       {"depthwise", {1, 3, 4, 3}, {3, 1, 3, 3}, {.padding = 1, .groups = 3}},
       {"one of all", {1, 1, 1, 1}, {1, 1, 1, 1}, {}},
       {"no images", {0, 2, 3, 3}, {2, 1, 2, 2}, {}},
       {"without batch", {2, 3, 3}, {2, 3, 2, 2}, {.stride = 2}},
       {"large", {2, 17, 7, 6}, {17, 33, 4, 4}, {.stride = 2, .padding = 1}}},
      Plain2());
  add_transposed<ConvTranspose3dFuncOptions>(
      "conv_transpose3d", &conv_transpose3d,
      {{"", {1, 2, 3, 2, 3}, {2, 3, 2, 3, 2}, {}},
       {"options",
        {1, 4, 2, 3, 2},
        {4, 2, 2, 2, 3},
        {.stride = {2, 1, 3},
         .padding = {1, 0, 1},
         .output_padding = {1, 1, 2},
         .dilation = {1, 2, 1},
         .groups = 2}},
       {"one of all", {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {}},
       {"no volumes", {0, 2, 2, 2, 2}, {2, 1, 2, 2, 2}, {}},
       {"without batch", {2, 2, 3, 2}, {2, 2, 2, 2, 2}, {.stride = 2}}},
      Plain3());
}

}  // namespace

static const bool added = [] {
  add_images();
  add_volumes();
  add_signals();
  add_special_inputs();
  add_all_transposed();
  return true;
}();

}  // namespace gradus::optest
