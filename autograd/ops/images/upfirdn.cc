// Differentiable upfirdn2d (upsample with zeros, FIR filter, downsample) of images x [N, C, H, W] with one
// filter [KH, KW] for all channels; raw::upfirdn2d computes it. filter2d, upsample2d and downsample2d of
// StyleGAN2 are upfirdn2d with the padding that centers the filter. raw::upfirdn2d_geometry checks shapes,
// dtypes and devices.
#include "gradus/autograd/ops/images/upfirdn.h"

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"

namespace gradus {
namespace {

using raw::UpfirdnGeometry;

// y is bilinear in x and the kernel, so the derivatives of forward (y, dx) and of kernel_grad (dk) are again
// calls of these two functions: gradients of any order exist.
Tensor forward(const Tensor& x, const Tensor& kernel, const UpfirdnGeometry& g);
Tensor kernel_grad(const Tensor& dy, const Tensor& x, const UpfirdnGeometry& g);

// Returns the geometry of the input's gradient: up and down exchanged, the kernel rotated by 180 degrees.
UpfirdnGeometry backward_of(const UpfirdnGeometry& g) {
  return {g.output,  g.input, g.kernel, g.down, g.up, g.kernel.w - 1 - g.left, g.kernel.h - 1 - g.top,
          !g.flipped};
}

Tensor forward(const Tensor& x, const Tensor& kernel, const UpfirdnGeometry& g) {
  Tensor y = raw::upfirdn2d(x, kernel, g);
  if (Recorder r{"upfirdn2d", x, kernel})
    r.record(
        y, wrt(x, [k = r.save(kernel), g](const Tensor& dy) { return forward(dy, k.get(), backward_of(g)); }),
        wrt(kernel, [x = r.save(x), g](const Tensor& dy) { return kernel_grad(dy, x.get(), g); }));
  return y;
}

Tensor kernel_grad(const Tensor& dy, const Tensor& x, const UpfirdnGeometry& g) {
  Tensor dk = raw::upfirdn2d_kernel_grad(dy, x, g);
  if (Recorder r{"upfirdn2d_kernel_grad", dy, x})
    r.record(dk, wrt(dy, [x = r.save(x), g](const Tensor& k) { return forward(x.get(), k, g); }),
             wrt(x, [dy = r.save(dy), g](const Tensor& k) { return forward(dy.get(), k, backward_of(g)); }));
  return dk;
}

// Number of zeros before and after the pixels of a dim (negative: crops). If the filter cannot be centered,
// the front gets one more, as in StyleGAN2.
struct Ends {
  int64_t front, back;
};
Upfirdn2dOptions padded(Upfirdn2dOptions o, Ends h, Ends w) {
  o.padding = {w.front, w.back, h.front, h.back};
  return o;
}

void check_factor(const char* op, int64_t factor) { check_bounds(op, "factor", factor, 1); }

// Returns floor(n / 2).
int64_t half(int64_t n) { return n >= 0 ? n / 2 : -((1 - n) / 2); }

// Height and width of the filter; a filter [K] stands for its outer product with itself, [K, K]. For 0 dims,
// 1: upfirdn2d then throws.
int64_t height(const Tensor& kernel) { return kernel.dim() > 0 ? kernel.size(0) : 1; }
int64_t width(const Tensor& kernel) { return kernel.dim() > 0 ? kernel.size(-1) : 1; }

}  // namespace

Tensor upfirdn2d(const Tensor& x, const Tensor& kernel, const Upfirdn2dOptions& options) {
  const OpCall call("upfirdn2d", {{"x", x}, {"kernel", kernel}});
  if (autograd::Casting cast{"upfirdn2d", x, kernel}) return upfirdn2d(cast(x), cast(kernel), options);
  const Tensor square = kernel.dim() == 1 ? mul(unsqueeze(kernel, 1), unsqueeze(kernel, 0)) : kernel;
  return forward(x, square, raw::upfirdn2d_geometry(x, square, options, false));
}

Tensor filter2d(const Tensor& x, const Tensor& kernel) {
  const OpCall call("filter2d", {{"x", x}, {"kernel", kernel}});
  const auto ends = [](int64_t k) { return Ends{k / 2, (k - 1) / 2}; };
  return upfirdn2d(x, kernel, padded({}, ends(height(kernel)), ends(width(kernel))));
}

Tensor upsample2d(const Tensor& x, const Tensor& kernel, int64_t factor) {
  const OpCall call("upsample2d", {{"x", x}, {"kernel", kernel}});
  check_factor("upsample2d", factor);
  const auto ends = [=](int64_t k) { return Ends{half(k + factor - 1), half(k - factor)}; };
  const Tensor y = upfirdn2d(x, kernel, padded({.up = factor}, ends(height(kernel)), ends(width(kernel))));
  return mul(y, double(factor * factor));
}

Tensor downsample2d(const Tensor& x, const Tensor& kernel, int64_t factor) {
  const OpCall call("downsample2d", {{"x", x}, {"kernel", kernel}});
  check_factor("downsample2d", factor);
  const auto ends = [=](int64_t k) { return Ends{half(k - factor + 1), half(k - factor)}; };
  return upfirdn2d(x, kernel, padded({.down = factor}, ends(height(kernel)), ends(width(kernel))));
}

}  // namespace gradus
