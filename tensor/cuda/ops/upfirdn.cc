// Sets the CUDA kernels of raw::upfirdn2d_kernel and raw::upfirdn2d_kernel_grad_kernel
// (tensor/ops/images/upfirdn.h). The functions here only unpack tensors and the geometry, and allocate the
// workspace; the device code is in kernels/images/upfirdn.cu.cc. Tensors are f32 or f64 and not empty, images
// channels-last and filters row-major. Work is queued on the current stream of the tensors' device.
#include "gradus/tensor/ops/images/upfirdn.h"

#include <cmath>

#include "gradus/tensor/cuda/kernels/images/upfirdn.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

// Errors: ValueError for positions along a side that do not fit 32 bits.
Upfirdn upfirdn_of(const char* op, const Tensor& x, const raw::UpfirdnGeometry& g) {
  const auto axis = [&](int64_t Size2::*side, int64_t padding) {
    const int64_t in = g.input.*side, out = g.output.*side, kernel = g.kernel.*side;
    // A single pixel has no distance to the next one.
    const int64_t up = in == 1 ? 1 : g.up.*side, down = out == 1 ? 1 : g.down.*side;
    const auto wide = [](int64_t v) { return static_cast<double>(v); };
    if (wide(in) * wide(up) + wide(out) * wide(down) + wide(kernel) + std::abs(wide(padding)) >= 0x1p31)
      throw ValueError(op,
                       "expected sides with their zeros, a filter and a padding of less than 2^31 in all on ",
                       x.device(), ", got ", in, " times ", up, ", ", out, " times ", down, ", ", kernel,
                       " and ", padding);
    const auto n = [](int64_t v) { return static_cast<int32_t>(v); };
    return UpfirdnAxis{n(in), n(out), n(kernel), n(up), n(down), n(padding)};
  };
  return {x.size(0), x.size(1), axis(&Size2::h, g.top), axis(&Size2::w, g.left), g.flipped};
}

void upfirdn2d_cuda(const Tensor& y, const Tensor& x, const Tensor& kernel, raw::UpfirdnGeometry g) {
  const Upfirdn s = upfirdn_of("upfirdn2d", x, g);
  const cudaStream_t stream = stream_for({&y, &x, &kernel});
  dispatch_floating(x.dtype(), "upfirdn2d", [&]<class T>() {
    upfirdn2d("upfirdn2d", y.ptr<T>(), x.ptr<T>(), kernel.ptr<T>(), s, stream);
  });
}

void upfirdn2d_kernel_grad_cuda(const Tensor& dk, const Tensor& dy, const Tensor& x, raw::UpfirdnGeometry g) {
  const Upfirdn s = upfirdn_of("upfirdn2d_kernel_grad", x, g);
  const cudaStream_t stream = stream_for({&dk, &dy, &x});
  const Tensor workspace = workspace_for(x, upfirdn2d_filter_grad_workspace(s));
  dispatch_floating(x.dtype(), "upfirdn2d_kernel_grad", [&]<class T>() {
    upfirdn2d_filter_grad("upfirdn2d_kernel_grad", dk.ptr<T>(), dy.ptr<T>(), x.ptr<T>(), s,
                          workspace.raw_ptr(), stream);
  });
}

[[maybe_unused]] const bool is_set =
    (raw::upfirdn2d_kernel.cuda = &upfirdn2d_cuda,
     raw::upfirdn2d_kernel_grad_kernel.cuda = &upfirdn2d_kernel_grad_cuda, true);

}  // namespace
}  // namespace gradus::cuda
