// Sets the CUDA slots of max and average pooling and their gradients (tensor/ops/images/pool.h, which has the
// contract): converts tensors and the geometry to the arguments of the launches in kernels/images/pool.h, and queues
// these on the tensors' current stream. Callers have checked shapes and dtypes; tensors are channels-last and
// not empty.
#include "gradus/tensor/ops/images/pool.h"

#include <limits>

#include "gradus/tensor/cuda/kernels/images/pool.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

// `x` has the images and their channels.
// Errors: ValueError.
Pooling pooling_of(const char* op, const Tensor& x, const PoolWindows& w) {
  const auto axis = [&](int64_t Size3::*side) {
    const int64_t in = w.input.*side, out = w.output.*side, kernel = w.kernel.*side, stride = w.stride.*side,
                  padding = w.padding.*side, dilation = w.dilation.*side;
    if (in + 2 * padding + kernel * dilation + stride > std::numeric_limits<int32_t>::max())
      throw ValueError(op,
                       "expected a side with its padding, a window and a stride of less than 2^31 in all on ",
                       x.device(), ", got ", in, ", twice ", padding, ", ", kernel,
                       " cells at a distance of ", dilation, ", and ", stride);
    const auto n = [](int64_t v) { return static_cast<int32_t>(v); };
    return PoolAxis<int32_t>{n(in), n(out), n(kernel), n(stride), n(padding), n(dilation), w.adaptive};
  };
  return {x.size(0),       x.size(1),           axis(&Size3::d), axis(&Size3::h),
          axis(&Size3::w), w.count_include_pad, w.divisor};
}

void max_pool_cuda(const Tensor& y, const Tensor& index, const Tensor& x, PoolWindows w) {
  const View where = index.defined() ? view_of(index) : View{nullptr, DType::kU8};
  max_pool("max_pool", view_of(y), where, view_of(x), pooling_of("max_pool", x, w),
           stream_for({&y, &index, &x}));
}
void max_pool_scatter_cuda(const Tensor& dx, const Tensor& dy, const Tensor& index, PoolWindows w) {
  max_pool_scatter("max_pool_scatter", view_of(dx), view_of(dy), view_of(index),
                   pooling_of("max_pool_scatter", dx, w), stream_for({&dx, &dy, &index}));
}
void max_pool_gather_cuda(const Tensor& y, const Tensor& x, const Tensor& index, PoolWindows w) {
  max_pool_gather("max_pool_gather", view_of(y), view_of(x), view_of(index),
                  pooling_of("max_pool_gather", x, w), stream_for({&y, &x, &index}));
}
void max_pool_positions_cuda(const Tensor& positions, const Tensor& index, PoolWindows w) {
  max_pool_positions("max_pool_positions", positions.ptr<int64_t>(), view_of(index),
                     pooling_of("max_pool_positions", index, w), stream_for({&positions, &index}));
}
void avg_pool_cuda(const Tensor& y, const Tensor& x, PoolWindows w) {
  avg_pool("avg_pool", view_of(y), view_of(x), pooling_of("avg_pool", x, w), stream_for({&y, &x}));
}
void avg_pool_spread_cuda(const Tensor& dx, const Tensor& dy, PoolWindows w) {
  avg_pool_spread("avg_pool_spread", view_of(dx), view_of(dy), pooling_of("avg_pool_spread", dx, w),
                  stream_for({&dx, &dy}));
}
void max_pool_relu_grad_cuda(const Tensor& x, const Tensor& dy, PoolWindows w) {
  max_pool_relu_grad("max_pool_relu_grad_", view_of(x), view_of(dy), pooling_of("max_pool_relu_grad_", x, w),
                     stream_for({&x, &dy}));
}

[[maybe_unused]] const bool is_set =
    (raw::max_pool_kernel.cuda = &max_pool_cuda, raw::max_pool_scatter_kernel.cuda = &max_pool_scatter_cuda,
     raw::max_pool_gather_kernel.cuda = &max_pool_gather_cuda,
     raw::max_pool_positions_kernel.cuda = &max_pool_positions_cuda,
     raw::avg_pool_kernel.cuda = &avg_pool_cuda, raw::avg_pool_spread_kernel.cuda = &avg_pool_spread_cuda,
     raw::max_pool_relu_grad_kernel.cuda = &max_pool_relu_grad_cuda, true);

}  // namespace
}  // namespace gradus::cuda
