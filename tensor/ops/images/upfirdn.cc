// Checks and calls of the upfirdn2d kernels: upsampling by `up` with zeros, padding (negative: cropping),
// convolution with a filter (correlation if `flipped`), downsampling by `down`. x is [N, C, H, W]; one filter
// [KH, KW] serves all channels. A result side has (side * up + padding - kernel) / down + 1 pixels. 16-bit
// floats are computed in f32 and rounded once; the kernels take channels-last images and row-major filters.
#include "gradus/tensor/ops/images/upfirdn.h"

#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

constexpr const char* kOp = "upfirdn2d";

// Returns a side of the result. `in`: the side of x; `padding`: the sum of both sides.
int64_t output_extent(const Tensor& x, int64_t in, int64_t kernel, int64_t up, int64_t down,
                      int64_t padding) {
  const int64_t padded = Checked(kOp, in) * up + padding, room = Checked(kOp, padded) - kernel;
  if (room < 0)
    throw ShapeError(kOp, "kernel of ", kernel, " is larger than the padded image of ", padded, ": x ",
                     describe(x));
  const int64_t out = room / down + 1;
  check_bounds(kOp, "a side of the result", out, 1, kMaxTable);
  return out;
}

DType computed(DType t) { return t == DType::kF64 ? t : DType::kF32; }
Tensor prepared(const Tensor& x) { return channels_last(to(x, computed(x.dtype()))); }

}  // namespace

UpfirdnGeometry upfirdn2d_geometry(const Tensor& x, const Tensor& kernel, const Upfirdn2dOptions& o,
                                   bool flipped) {
  if (x.dim() != 4) throw ShapeError(kOp, "x must be [N,C,H,W]: x ", describe(x));
  if (kernel.dim() != 2 || kernel.numel() == 0)
    throw ShapeError(kOp, "kernel must be [KH,KW], with elements: kernel ", describe(kernel));
  check_floating(kOp, "x", x);
  check_same_dtype(kOp, "kernel", kernel, "x", x);
  if (!are_compatible_devices(kernel.device(), x.device()))
    throw DeviceError(kOp, "operands on different devices: x ", describe(x), " and kernel ",
                      describe(kernel));
  for (const Size2& s : {o.up, o.down}) check_bounds(kOp, "up and down", s, 1);
  for (int64_t p : {o.padding.left, o.padding.right, o.padding.top, o.padding.bottom})
    check_bounds(kOp, "padding", p, -kMaxExtent);
  if (x.size(2) == 0 || x.size(3) == 0) throw ShapeError(kOp, "x has no pixels: x ", describe(x));
  UpfirdnGeometry g{
      {x.size(2), x.size(3)}, {},     {kernel.size(0), kernel.size(1)}, o.up, o.down, o.padding.left,
      o.padding.top,          flipped};
  g.output.h = output_extent(x, g.input.h, g.kernel.h, g.up.h, g.down.h, o.padding.top + o.padding.bottom);
  g.output.w = output_extent(x, g.input.w, g.kernel.w, g.up.w, g.down.w, o.padding.left + o.padding.right);
  return g;
}

Tensor upfirdn2d(const Tensor& x, const Tensor& kernel, const UpfirdnGeometry& g) {
  const DType t = computed(x.dtype());
  const Tensor y = empty_channels_last({x.size(0), x.size(1), g.output.h, g.output.w}, {t, x.device()});
  if (y.numel() > 0) upfirdn2d_kernel(y, prepared(x), contiguous(to(kernel, t)), g);
  return to(y, x.dtype());
}

Tensor upfirdn2d_kernel_grad(const Tensor& dy, const Tensor& x, const UpfirdnGeometry& g) {
  const Tensor dk = empty({g.kernel.h, g.kernel.w}, {computed(x.dtype()), x.device()});
  if (x.numel() == 0)
    fill_(dk, 0);
  else
    upfirdn2d_kernel_grad_kernel(dk, prepared(dy), prepared(x), g);
  return to(dk, x.dtype());
}

}  // namespace gradus::raw
