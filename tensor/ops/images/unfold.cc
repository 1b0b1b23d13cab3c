// unfold (im2col) and fold (col2im): check operands, compute the number of window positions along each axis,
// and call the kernels, with 16-bit floats as f32.
#include "gradus/tensor/ops/images/unfold.h"

#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

// Returns the number of window positions along an axis of n pixels.
int64_t blocks_along(const char* op, int64_t n, int64_t kernel, int64_t stride, int64_t padding,
                     int64_t dilation) {
  const int64_t last_start = Checked(op, n) + 2 * padding - dilation * (kernel - 1) - 1;
  if (last_start < 0)
    throw ShapeError(op, "window of ", dilation * (kernel - 1) + 1, " is larger than the padded image of ",
                     n + 2 * padding);
  return last_start / stride + 1;
}

DType compute_dtype(DType t) { return t == DType::kF64 ? t : DType::kF32; }

}  // namespace

UnfoldWindows unfold_windows(const char* op, Size2 image, const UnfoldOptions& o) {
  check_bounds(op, "kernel", *o.kernel, 1);
  check_bounds(op, "stride", o.stride, 1);
  check_bounds(op, "padding", o.padding, 0);
  check_bounds(op, "dilation", o.dilation, 1);
  const Size2 k = o.kernel;
  return {image,
          {blocks_along(op, image.h, k.h, o.stride.h, o.padding.h, o.dilation.h),
           blocks_along(op, image.w, k.w, o.stride.w, o.padding.w, o.dilation.w)},
          k,
          o.stride,
          o.padding,
          o.dilation};
}

Tensor unfold(const Tensor& x, const UnfoldOptions& o) {
  if (x.dim() != 4) throw ShapeError("unfold", "x must be [N,C,H,W]: x ", describe(x));
  check_floating("unfold", "x", x);
  const UnfoldWindows w = unfold_windows("unfold", {x.size(2), x.size(3)}, o);
  const Tensor y = empty({x.size(0), Checked("unfold", x.size(1)) * w.kernel.h * w.kernel.w,
                          Checked("unfold", w.blocks.h) * w.blocks.w},
                         {compute_dtype(x.dtype()), x.device()});
  if (y.numel() > 0) unfold_kernel(y, contiguous(to(x, y.dtype())), w);
  return to(y, x.dtype());
}

Tensor fold(const Tensor& x, Size2 output, const UnfoldOptions& o) {
  if (x.dim() != 3) throw ShapeError("fold", "x must be [N,C kernel,blocks]: x ", describe(x));
  check_floating("fold", "x", x);
  check_bounds("fold", "output size", output, 1);
  const UnfoldWindows w = unfold_windows("fold", output, o);
  const int64_t cells = w.kernel.h * w.kernel.w, blocks = Checked("fold", w.blocks.h) * w.blocks.w;
  if (x.size(1) % cells != 0 || x.size(2) != blocks)
    throw ShapeError("fold", "x must be [N,C*", cells, ',', blocks, "]: x ", describe(x));
  const Tensor y =
      empty({x.size(0), x.size(1) / cells, output.h, output.w}, {compute_dtype(x.dtype()), x.device()});
  if (y.numel() > 0) fold_kernel(y, contiguous(to(x, y.dtype())), w);
  return to(y, x.dtype());
}

}  // namespace gradus::raw
