// Sets the CUDA kernels of raw::unfold_kernel and raw::fold_kernel (tensor/ops/images/unfold.h). The
// functions here only unpack tensors and the geometry; the device code is in kernels/images/unfold.cu.cc.
// Tensors are f32 or f64, row-major and not empty. Work is queued on the current stream of the tensors'
// device.
#include "gradus/tensor/ops/images/unfold.h"

#include <limits>

#include "gradus/tensor/cuda/kernels/images/unfold.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

// Errors: ValueError for positions along a side that do not fit 32 bits.
Unfolding unfolding_of(const char* op, const Tensor& images, const raw::UnfoldWindows& w) {
  const auto axis = [&](int64_t Size2::*side) {
    const int64_t image = w.image.*side, kernel = w.kernel.*side, stride = w.stride.*side,
                  padding = w.padding.*side, dilation = w.dilation.*side;
    if (image + 2 * padding + kernel * dilation + stride > std::numeric_limits<int32_t>::max())
      throw ValueError(op,
                       "expected a side with its padding, a window and a stride of less than 2^31 in all on ",
                       images.device(), ", got ", image, ", twice ", padding, ", ", kernel,
                       " pixels at a distance of ", dilation, ", and ", stride);
    const auto n = [](int64_t v) { return static_cast<int32_t>(v); };
    return UnfoldAxis{n(image), n(w.blocks.*side), n(kernel), n(stride), n(padding), n(dilation)};
  };
  return {images.size(0) * images.size(1), axis(&Size2::h), axis(&Size2::w)};
}

void unfold_cuda(const Tensor& columns, const Tensor& images, raw::UnfoldWindows w) {
  const Unfolding s = unfolding_of("unfold", images, w);
  const cudaStream_t stream = stream_for({&columns, &images});
  dispatch_floating(images.dtype(), "unfold",
                    [&]<class T>() { unfold("unfold", columns.ptr<T>(), images.ptr<T>(), s, stream); });
}
void fold_cuda(const Tensor& images, const Tensor& columns, raw::UnfoldWindows w) {
  const Unfolding s = unfolding_of("fold", images, w);
  const cudaStream_t stream = stream_for({&images, &columns});
  dispatch_floating(images.dtype(), "fold",
                    [&]<class T>() { fold("fold", images.ptr<T>(), columns.ptr<T>(), s, stream); });
}

[[maybe_unused]] const bool is_set =
    (raw::unfold_kernel.cuda = &unfold_cuda, raw::fold_kernel.cuda = &fold_cuda, true);

}  // namespace
}  // namespace gradus::cuda
