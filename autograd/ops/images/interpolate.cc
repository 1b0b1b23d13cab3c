// interpolate: resizes x [N, C, L], [N, C, H, W] or [N, C, D, H, W], with PyTorch's positions and weights.
// Builds per spatial axis a sparse matrix [out, in] of weights of input pixels (taps), and applies the
// matrices by resample(), whose gradient is resample() with the transposed matrices. kArea is adaptive
// average pooling.
#include "gradus/autograd/ops/images/interpolate.h"

#include <algorithm>
#include <cmath>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/images/pool.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

using Mode = Interpolation;
constexpr const char* kOp = "interpolate";

// Input and output size of one axis. `scale` is 0 unless the user passed a scale factor.
struct Axis {
  int64_t in, out;
  double scale;
  bool align_corners;
};

// Returns the distance between neighboring output pixels in input pixels. T is f64 for x in f64, else f32, as
// in PyTorch, so that the nearest pixel is the same.
template <class T> T step_of(const Axis& a) {
  if (a.align_corners) return a.out > 1 ? T(a.in - 1) / T(a.out - 1) : T(0);
  return a.scale > 0 ? T(1.0 / a.scale) : T(a.in) / T(a.out);
}

// Returns the position of output pixel i in input pixels: 0 is the center of the first.
template <class T> T position(const Axis& a, T step, int64_t i) {
  return a.align_corners ? step * T(i) : step * (T(i) + T(0.5)) - T(0.5);
}

// nearest, linear and cubic append one matrix row per output pixel: input pixels and their weights. `exact`:
// takes the pixel nearest to the center of the output pixel instead of rounding down.
template <class T> void nearest(AxisTaps& taps, const Axis& a, bool exact) {
  const T step = step_of<T>(a);
  for (int64_t i = 0; i < a.out; ++i) {
    const T at = exact ? (T(i) + T(0.5)) * step : T(i) * step;
    taps.add(std::min(int64_t(std::floor(at)), a.in - 1), 1);
    taps.end_output();
  }
}

template <class T> void linear(AxisTaps& taps, const Axis& a) {
  const T step = step_of<T>(a);
  for (int64_t i = 0; i < a.out; ++i) {
    const T at = a.in == a.out ? T(i) : std::max(position(a, step, i), T(0));
    const int64_t left = std::min(int64_t(at), a.in - 1);
    const T weight = std::clamp(at - T(left), T(0), T(1));
    if (left + 1 < a.in && weight != T(0)) {
      taps.add(left, T(1) - weight);
      taps.add(left + 1, weight);
    } else {
      taps.add(left, 1);
    }
    taps.end_output();
  }
}

// Cubic convolution kernel of Keys with parameter a at distance t.
template <class T> T cubic_weight(T t, T a) {
  t = std::abs(t);
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  if (t < 2) return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
  return 0;
}

template <class T> void cubic(AxisTaps& taps, const Axis& a) {
  const T step = step_of<T>(a);
  for (int64_t i = 0; i < a.out; ++i) {
    const T at = position(a, step, i);
    const int64_t left = std::min(int64_t(std::floor(at)), a.in - 1);
    const T t = std::clamp(at - T(left), T(0), T(1));
    for (int64_t k = -1; k <= 2; ++k)
      taps.add(std::clamp<int64_t>(left + k, 0, a.in - 1), cubic_weight(t - T(k), T(-0.75)));
    taps.end_output();
  }
}

// Adds the taps of a triangle or cubic filter, with weights normalized to sum 1. For downsampling the filter
// is widened by the ratio of the sizes.
template <class T> void antialiased(AxisTaps& taps, const Axis& a, bool is_cubic) {
  const T step = step_of<T>(a), shrink = std::max(step, T(1)), support = (is_cubic ? T(2) : T(1)) * shrink;
  std::vector<T> weights;
  for (int64_t i = 0; i < a.out; ++i) {
    const T center = step * (T(i) + T(0.5));
    const int64_t first = std::max<int64_t>(int64_t(center - support + T(0.5)), 0);
    const int64_t last = std::min(int64_t(center + support + T(0.5)), a.in);
    weights.clear();
    T total = 0;
    for (int64_t j = first; j < last; ++j) {
      const T t = (T(j) - center + T(0.5)) / shrink;
      weights.push_back(is_cubic ? cubic_weight(t, T(-0.5)) : std::max(T(1) - std::abs(t), T(0)));
      total += weights.back();
    }
    for (int64_t j = first; j < last; ++j)
      taps.add(j, total != 0 ? weights[size_t(j - first)] / total : weights[size_t(j - first)]);
    taps.end_output();
  }
}

// Returns the matrix of one axis. T is the dtype of positions: f64 for f64 tensors, else f32.
template <class T> AxisTaps taps_of(const Axis& a, Mode mode, bool antialias) {
  AxisTaps taps;
  taps.in = a.in;
  if (antialias)
    antialiased<T>(taps, a, mode == Mode::kBicubic);
  else if (mode == Mode::kNearest || mode == Mode::kNearestExact)
    nearest<T>(taps, a, mode == Mode::kNearestExact);
  else if (mode == Mode::kBicubic)
    cubic<T>(taps, a);
  else
    linear<T>(taps, a);
  return taps;
}

// Throws for an x or for options that the mode does not support. The batch size may be 0.
void check(const Tensor& x, const InterpolateOptions& o) {
  const int rank = x.dim() - 2;
  const int wanted = o.mode == Mode::kLinear                                 ? 1
                     : o.mode == Mode::kTrilinear                            ? 3
                     : o.mode == Mode::kBilinear || o.mode == Mode::kBicubic ? 2
                                                                             : 0;
  if (rank < 1 || rank > 3 || (wanted && rank != wanted))
    throw ShapeError(kOp,
                     wanted ? "the mode takes x of another number of dims, namely " : "x must have at least ",
                     wanted ? wanted + 2 : 3, wanted ? "" : " and at most 5 dims", ": x ", describe(x));
  check_floating(kOp, "x", x);
  for (int d = 1; d < x.dim(); ++d)
    if (x.size(d) == 0) throw ShapeError(kOp, "x has no pixels to interpolate: x ", describe(x));
  if (o.size.empty() == o.scale_factor.empty()) throw ValueError(kOp, "give either size or scale_factor");
  const int entries = o.size.empty() ? int(o.scale_factor.size()) : o.size.size();
  if (entries != rank && !(entries == 1 && o.size.empty()))
    throw ValueError(kOp, "size or scale_factor has ", entries, " entries for the ", rank, " dims of x ",
                     describe(x));
  if (o.align_corners && (wanted == 0))
    throw ValueError(kOp, "align_corners is for the linear and cubic modes");
  if (o.antialias && wanted != 2) throw ValueError(kOp, "antialias is for the modes bilinear and bicubic");
}

// Returns the sizes of spatial dim i (dim i + 2 of x) of the input and of the result.
Axis axis_of(const Tensor& x, const InterpolateOptions& o, int i) {
  const double scale =
      o.scale_factor.empty() ? 0 : o.scale_factor[o.scale_factor.size() == 1 ? 0 : size_t(i)];
  if (!o.scale_factor.empty() && !(scale > 0 && scale < 1e9))
    throw ValueError(kOp, "scale_factor must be positive, got ", scale);
  const int64_t in = x.size(i + 2);
  const int64_t out = o.size.empty() ? int64_t(std::floor(double(in) * scale)) : o.size[i];
  if (out < 1)
    throw ValueError(kOp, "the result's sizes must be at least 1, got ", out, " for x ", describe(x));
  check_bounds(kOp, "a size of x", in, 1, kMaxTable);
  check_bounds(kOp, "a size of the result", out, 1, kMaxTable);
  return {in, out, scale, o.align_corners};
}

Tensor area(const Tensor& x, const std::vector<Axis>& axes) {
  if (axes.size() == 1) return adaptive_avg_pool1d(x, axes[0].out);
  if (axes.size() == 2) return adaptive_avg_pool2d(x, {axes[0].out, axes[1].out});
  return adaptive_avg_pool3d(x, {axes[0].out, axes[1].out, axes[2].out});
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& o) {
  const OpCall call("interpolate", {{"x", x}});
  check(x, o);
  const int rank = x.dim() - 2;
  std::vector<Axis> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(axis_of(x, o, i));
  Shape shape{x.size(0), x.size(1)};
  for (const Axis& a : axes) shape.push_back(a.out);
  checked_numel(shape, kOp);
  if (o.mode == Mode::kArea) return area(x, axes);
  Resampling map;  // axes D, H, W; null axes, which x lacks, are the identity
  for (int i = 0; i < rank; ++i)
    map.axes[size_t(3 - rank + i)] = std::make_shared<AxisTaps>(
        x.dtype() == DType::kF64 ? taps_of<double>(axes[size_t(i)], o.mode, o.antialias)
                                 : taps_of<float>(axes[size_t(i)], o.mode, o.antialias));
  return resample(x, map);
}

Tensor resample(const Tensor& x, const Resampling& map) {
  const OpCall call("resample", {{"x", x}});
  return autograd::record_unary("resample", x, raw::resample(x, map),
                                [map](const Tensor& dy) { return resample(dy, map.transposed()); });
}

}  // namespace gradus
