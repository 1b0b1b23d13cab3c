// grid_sample and affine_grid, as in torch.nn.functional. grid_sample is composed of differentiable ops and
// has no backward rule of its own. x [N,C,H,W] is viewed as pixels [N*H*W,C]. Each of the 1, 4 or 16 pixels
// (taps) of the interpolation at grid [N,P,Q,2] is one index_select of N*P*Q rows, times a weight that
// depends on the grid. Steps: coordinates in [-1, 1] -> pixel positions -> padding mode -> integer positions
// and weights -> sum of taps.
#include "gradus/autograd/ops/images/grid_sample.h"

#include <algorithm>
#include <array>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

constexpr const char* kOp = "grid_sample";

// Errors: as grid_sample in grid_sample.h.
void check(const Tensor& x, const Tensor& grid) {
  if (x.dim() != 4 || grid.dim() != 4 || grid.size(3) != 2 || grid.size(0) != x.size(0))
    throw ShapeError(kOp, "x must be [N,C,H,W] and grid [N,P,Q,2]: x ", describe(x), " and grid ",
                     describe(grid));
  if (x.size(2) == 0 || x.size(3) == 0) throw ShapeError(kOp, "x has no pixels: x ", describe(x));
  if ((x.dtype() != DType::kF32 && x.dtype() != DType::kF64) || x.dtype() != grid.dtype())
    throw DTypeError(kOp, "expected f32 or f64, the same for both: x ", describe(x), " and grid ",
                     describe(grid));
  autograd::check_same_device(kOp, "x", x, "grid", grid);
}

// Reflects positions at the borders of an axis of n pixels until they lie inside. `aligned`: the borders are
// the centers of the first and last pixels; otherwise their outer edges.
Tensor reflected(const Tensor& at, int64_t n, bool aligned) {
  const double low = aligned ? 0 : -0.5, span = aligned ? double(n - 1) : double(n);
  if (span == 0) return mul(at, 0);
  const Tensor distance = abs(sub(at, low)), reflections = detach(floor(div(distance, span)));
  const Tensor rest = sub(distance, mul(reflections, span)), odd = remainder(reflections, 2);
  // low + rest after an even number of reflections, low + span - rest after an odd number.
  return add(add(mul(rest, sub(1, mul(odd, 2))), mul(odd, span)), low);
}

// Converts grid coordinates in [-1, 1] to pixel positions, where pixel i has its center at i.
Tensor position(const Tensor& grid, int64_t n, const GridSampleOptions& o) {
  return o.align_corners ? mul(add(grid, 1), double(n - 1) / 2)
                         : div(sub(mul(add(grid, 1), double(n)), 1), 2);
}

// Applies the padding mode to positions: reflection, then clamping to [0, n - 1]; no change for kZeros.
Tensor padded(const Tensor& at, int64_t n, const GridSampleOptions& o) {
  if (o.padding == SamplePadding::kZeros) return at;
  const Tensor inside = o.padding == SamplePadding::kReflection ? reflected(at, n, o.align_corners) : at;
  return clamp(inside, 0, double(n - 1));
}

// Integer positions on an axis as pixel indices (i64), 0 for positions outside of the axis or NaN.
struct Cells {
  Tensor index, inside;  // inside: bool
};
// `whole` has integer values as floats; n: number of pixels of the axis.
Cells cells_at(const Tensor& whole, int64_t n) {
  const Tensor inside = logical_and(ge(whole, 0), le(whole, double(n - 1)));
  return {to(where(inside, whole, 0.0), DType::kI64), inside};
}

// The pixels at floor(position) - 1, 0, +1 and +2 of an axis, and their weights of cubic convolution (Keys
// 1981, a = -0.75). The padding mode applies to each pixel's position, not to the sampled position.
struct CubicTaps {
  std::array<Cells, 4> cells;
  std::array<Tensor, 4> weights;
};
CubicTaps cubic_taps(const Tensor& at, int64_t n, const GridSampleOptions& o) {
  constexpr double a = -0.75;
  // Weights of pixels at distance d: near for d <= 1, far for 1 < d < 2.
  const auto near = [](const Tensor& d) { return add(mul(mul(sub(mul(d, a + 2), a + 3), d), d), 1); };
  const auto far = [](const Tensor& d) {
    return sub(mul(add(mul(sub(mul(d, a), 5 * a), d), 8 * a), d), 4 * a);
  };
  const Tensor whole = detach(floor(at)), t = sub(at, whole), rest = sub(1, t);
  CubicTaps taps{{}, {far(add(t, 1)), near(t), near(rest), far(add(rest, 1))}};
  for (int k = 0; k < 4; ++k) taps.cells[k] = cells_at(padded(add(whole, k - 1), n, o), n);
  return taps;
}

// Returns [N*P*Q,C]: the rows (first + h) * size.w + w of pixels [N*H*W,C], times weight. first [N,1,1] is
// n * H for image n; h, w and weight are [N,P,Q]. Rows outside of the image are 0.
Tensor read(const Tensor& pixels, Size2 size, const Tensor& first, const Cells& h, const Cells& w,
            const Tensor& weight) {
  const Tensor index = add(mul(add(first, h.index), size.w), w.index);
  const auto column = [&](const Tensor& t) { return reshape(t, {index.numel(), 1}); };
  const Tensor rows = index_select(pixels, 0, reshape(index, {-1}));
  // Not a factor of 0: the pixel at index 0 may be infinite.
  return mul(where(column(logical_and(h.inside, w.inside)), rows, 0.0), column(weight));
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& o) {
  const OpCall call("grid_sample", {{"x", x}, {"grid", grid}});
  if (autograd::Casting cast{"grid_sample"}) return grid_sample(cast(x), cast(grid), o);
  check(x, grid);
  const int64_t N = x.size(0), C = x.size(1), P = grid.size(1), Q = grid.size(2);
  const Size2 size(x.size(2), x.size(3));
  const Tensor pixels = reshape(permute(x, {0, 2, 3, 1}), {N * size.h * size.w, C});
  const Tensor vertical = position(select(grid, 3, 1), size.h, o),
               horizontal = position(select(grid, 3, 0), size.w, o);
  // n * H. Multiplied by W in read(), the row in `pixels` of the first pixel of image n.
  const Tensor first =
      reshape(mul(arange(N, {.dtype = DType::kI64, .device = x.device()}), size.h), {N, 1, 1});
  Tensor y;
  if (o.mode == SampleMode::kBicubic) {
    const CubicTaps rows = cubic_taps(vertical, size.h, o), columns = cubic_taps(horizontal, size.w, o);
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) {
        const Tensor part = read(pixels, size, first, rows.cells[i], columns.cells[j],
                                 mul(rows.weights[i], columns.weights[j]));
        y = y.defined() ? add(y, part) : part;
      }
    return permute(reshape(y, {N, P, Q, C}), {0, 3, 1, 2});
  }
  const Tensor v = padded(vertical, size.h, o), u = padded(horizontal, size.w, o);
  if (o.mode == SampleMode::kNearest) {  // round: ties to even; no gradient to the grid
    const Tensor one = ones({N, P, Q}, {.dtype = x.dtype(), .device = x.device()});
    y = read(pixels, size, first, cells_at(detach(round(v)), size.h), cells_at(detach(round(u)), size.w),
             one);
  } else {
    const Tensor top = detach(floor(v)), left = detach(floor(u));
    const Tensor bottom_weight = sub(v, top), right_weight = sub(u, left), top_weight = sub(1, bottom_weight),
                 left_weight = sub(1, right_weight);
    const Cells h0 = cells_at(top, size.h), h1 = cells_at(add(top, 1), size.h);
    const Cells w0 = cells_at(left, size.w), w1 = cells_at(add(left, 1), size.w);
    y = add(add(read(pixels, size, first, h0, w0, mul(top_weight, left_weight)),
                read(pixels, size, first, h0, w1, mul(top_weight, right_weight))),
            add(read(pixels, size, first, h1, w0, mul(bottom_weight, left_weight)),
                read(pixels, size, first, h1, w1, mul(bottom_weight, right_weight))));
  }
  return permute(reshape(y, {N, P, Q, C}), {0, 3, 1, 2});
}

Tensor affine_grid(const Tensor& theta, Size2 size, const AffineGridOptions& o) {
  const OpCall call("affine_grid", {{"theta", theta}});
  if (autograd::Casting cast{"affine_grid"}) return affine_grid(cast(theta), size, o);
  if (theta.dim() != 3 || theta.size(1) != 2 || theta.size(2) != 3)
    throw ShapeError("affine_grid", "theta must be [N,2,3]: theta ", describe(theta));
  check_bounds("affine_grid", "size", size, 1);
  checked_numel({theta.size(0), size.h, size.w, 3}, "affine_grid");
  if (theta.dtype() != DType::kF32 && theta.dtype() != DType::kF64)
    throw DTypeError("affine_grid", "expected f32 or f64: theta ", describe(theta));
  const TensorOptions options{theta.dtype(), theta.device()};
  // Returns the coordinates in [-1, 1] of the centers of n pixels.
  const auto centers = [&](int64_t n) {
    if (n == 1) return zeros({1}, options);
    const double end = o.align_corners ? 1 : 1 - 1 / double(n);
    return linspace(-end, end, n, options);
  };
  // positions[p, q] = (u, v, 1), so that grid = positions theta^T.
  const Shape cells{size.h, size.w};
  const Tensor positions = stack(
      {expand(centers(size.w), cells), expand(unsqueeze(centers(size.h), 1), cells), ones(cells, options)},
      2);
  const Tensor grid = matmul(reshape(positions, {size.h * size.w, 3}), transpose(theta, 1, 2));
  return reshape(grid, {theta.size(0), size.h, size.w, 2});
}

}  // namespace gradus
