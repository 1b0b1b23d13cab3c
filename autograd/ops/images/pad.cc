// pad: kConstant allocates y, fills the borders and copies x between them, for any number of dims. The other
// modes compute y as a resampling (interpolate.h) of the spatial dims of x [N, C, (D, (H,)) W], whose sparse
// matrix has a single 1 per row, at the source element; the gradient is the transposed resampling.
#include "gradus/autograd/ops/images/pad.h"

#include <algorithm>
#include <cmath>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/images/interpolate.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

constexpr const char* kOp = "pad";

// Numbers of elements to add before and after a dim; negative ones crop.
struct Sides {
  int64_t front = 0, back = 0;
};

// Returns one pair per dim of x, in x's order; 0 without one in `pads`, which begins with the last dim's.
std::vector<Sides> sides_of(const Tensor& x, const std::vector<int64_t>& pads) {
  if (pads.size() % 2 != 0) throw ValueError(kOp, "pads come in pairs, got ", pads.size(), " of them");
  if (int64_t(pads.size()) > 2 * x.dim())
    throw ShapeError(kOp, pads.size() / 2, " pairs of pads for x ", describe(x));
  std::vector<Sides> sides(size_t(x.dim()));
  for (size_t i = 0; 2 * i < pads.size(); ++i) {
    const size_t d = sides.size() - 1 - i;
    sides[d] = {pads[2 * i], pads[2 * i + 1]};
    for (int64_t p : {sides[d].front, sides[d].back}) check_bounds(kOp, "pads", p, -kMaxNumel, kMaxNumel);
    if (x.size(int64_t(d)) + sides[d].front + sides[d].back < 0)
      throw ShapeError(kOp, "pads ", sides[d].front, " and ", sides[d].back, " leave a negative size of dim ",
                       d, ": x ", describe(x));
  }
  return sides;
}

// Writes `value` into the padding of y: a slab at both ends of each dim. Slabs overlap in the corners.
void fill_sides(const Tensor& y, const std::vector<Sides>& sides, double value) {
  for (int d = 0; d < y.dim(); ++d) {
    const int64_t n = y.size(d), front = std::clamp<int64_t>(sides[size_t(d)].front, 0, n);
    const int64_t back = std::clamp<int64_t>(sides[size_t(d)].back, 0, n);
    if (front > 0) raw::fill_(raw::narrow(y, d, 0, front), value);
    if (back > 0) raw::fill_(raw::narrow(y, d, n - back, back), value);
  }
}

// Returns x cropped or padded with `value`, in x's layout.
Tensor padded_by(const Tensor& x, const std::vector<Sides>& sides, double value) {
  Shape shape = x.shape();
  for (int d = 0; d < x.dim(); ++d) shape[d] += sides[size_t(d)].front + sides[size_t(d)].back;
  const TensorOptions options{x.dtype(), x.device()};
  const bool last = x.dim() >= 3 && x.dim() <= 5 && x.is_channels_last();
  const Tensor y = last ? empty_channels_last(shape, options) : empty(shape, options);
  fill_sides(y, sides, value);
  Tensor from = x, to = y;
  for (int d = 0; d < x.dim(); ++d) {
    const Sides s = sides[size_t(d)];
    const int64_t first = std::max<int64_t>(-s.front, 0), end = x.size(d) + std::min<int64_t>(s.back, 0);
    if (end <= first) return y;
    from = raw::narrow(from, d, first, end - first);
    to = raw::narrow(to, d, std::max<int64_t>(s.front, 0), end - first);
  }
  raw::copy_(to, from);
  return y;
}

// Pads with a constant or crops. Padding's gradient is cropping, and cropping's is zero padding.
Tensor constant_pad(const Tensor& x, const std::vector<int64_t>& pads, double value) {
  const Tensor y = padded_by(x, sides_of(x, pads), value);
  if (Recorder r{kOp, x})
    r.record(y, wrt(x, [pads](const Tensor& dy) {
               std::vector<int64_t> back = pads;
               for (int64_t& p : back) p = -p;
               return constant_pad(dy, back, 0);
             }));
  return y;
}

// Throws ValueError if an integer or bool dtype of x cannot represent `value`.
void check_value(const Tensor& x, double value) {
  const DType t = x.dtype();
  if (is_floating(t)) return;
  check_fits(kOp, value, t);
  if (value != std::trunc(value) || (t == DType::kBool && value != 0 && value != 1))
    throw ValueError(kOp, "the value ", value, " is not representable in ", t, ": x ", describe(x));
}

// Returns the index in [0, n) of the element that padding copies to position i, in or outside of [0, n).
int64_t source(PadMode mode, int64_t i, int64_t n) {
  if (mode == PadMode::kReplicate) return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == PadMode::kCircular) return (i % n + n) % n;
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

// Returns the sparse matrix (CSR) [n + front + back, n] that maps dim d of x to the padded dim.
std::shared_ptr<const AxisTaps> taps_of(const Tensor& x, int d, Sides s, PadMode mode) {
  const int64_t n = x.size(d), max_pad = std::max(s.front, s.back);
  if (n == 0) throw ShapeError(kOp, "dim ", d, " has no elements to pad with: x ", describe(x));
  if (mode == PadMode::kReflect && max_pad >= n)
    throw ValueError(kOp, "reflection padding of ", max_pad, " must be less than the size of dim ", d, " (",
                     n, "): x ", describe(x));
  if (mode == PadMode::kCircular && max_pad > n)
    throw ValueError(kOp, "circular padding of ", max_pad, " exceeds the size of dim ", d, " (", n, "): x ",
                     describe(x));
  check_bounds(kOp, "a size of x", n, 1, kMaxTable);
  check_bounds(kOp, "a size of the result", n + s.front + s.back, 0, kMaxTable);
  auto taps = std::make_shared<AxisTaps>();
  taps->in = n;
  for (int64_t i = -s.front; i < n + s.back; ++i) {
    taps->add(source(mode, i, n), 1);
    taps->end_output();
  }
  return taps;
}

// Pads with elements of x (kReflect, kReplicate, kCircular) or crops; x may lack N.
Tensor repeating_pad(const Tensor& x, const std::vector<int64_t>& pads, PadMode mode) {
  const int count = int(pads.size() / 2);
  const std::vector<Sides> sides = sides_of(x, pads);
  check_floating(kOp, "x", x);
  if (x.dim() >= 2 && x.dim() <= 4 && count == x.dim() - 1)
    return squeeze(repeating_pad(unsqueeze(x, 0), pads, mode), 0);
  if (x.dim() < 3 || x.dim() > 5 || count > x.dim() - 2)
    throw ShapeError(kOp, "the mode pads 1 to 3 dims behind the channels, got ", count, " pairs for x ",
                     describe(x));
  Resampling map;
  for (int d = 2; d < x.dim(); ++d) {
    const Sides s = sides[size_t(d)];
    if (s.front != 0 || s.back != 0) map.axes[size_t(3 - x.dim() + d)] = taps_of(x, d, s, mode);
  }
  return resample(x, map);
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<int64_t>& pads, const PadOptions& options) {
  const OpCall call("pad", {{"x", x}});
  if (options.mode != PadMode::kConstant) return repeating_pad(x, pads, options.mode);
  check_value(x, options.value);
  return constant_pad(x, pads, options.value);
}

}  // namespace gradus
