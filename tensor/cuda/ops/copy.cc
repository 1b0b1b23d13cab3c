// CUDA kernel slots of copy, cat, fill, arange and linspace (tensor/ops/copy.h, concat.h, creation.h). copy converts
// dtype and layout within a device, between GPUs, and between host and GPU; the callers have broadcast src to dst's
// shape. Between devices elements are first converted to dst's dtype and layout on src's device, then moved
// as bytes. Work is queued on the current streams. A copy to the host blocks until the data have arrived; a
// copy from the host first waits for the host's work.
#include "gradus/tensor/ops/copy.h"

#include <utility>

#include "gradus/tensor/cuda/kernels/copy.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/concat.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::cuda {
namespace {

using internal::NativeStream;

bool on_cuda(const Tensor& x) { return x.device().type == DeviceType::kCUDA; }

// Copies the bytes between dense tensors of one layout and dtype on different devices. The host-to-GPU copy
// runs on dst's current stream after the host's queued work. The GPU-to-GPU copy runs on src's stream and is
// ordered with dst's by events. The GPU-to-host copy waits for src's stream.
void move_bytes(const Tensor& dst, const Tensor& src) {
  const Stream to = current_stream(dst.device()), from = current_stream(src.device());
  if (!on_cuda(src)) {
    Event::record(from).synchronize();
    const cudaStream_t stream = stream_for({&dst});
    return internal::native_stream(to)->runtime().copy(dst.raw_ptr(), src.raw_ptr(), src.nbytes(), stream);
  }
  const std::shared_ptr<NativeStream> native = internal::native_stream(from);
  if (on_cuda(dst)) {
    // The copy waits for earlier work of `to`, which may use dst's block; `to` then waits for the copy.
    auto& allocator = internal::DeviceAllocator::of(dst.device());
    allocator.record_stream(dst.storage()->data(), internal::native_stream(to));
    from.wait(Event::record(to));
    const cudaStream_t stream = stream_for({&src});
    native->runtime().copy_between(dst.raw_ptr(), dst.device().index, src.raw_ptr(), src.device().index,
                                   src.nbytes(), stream);
    try {
      return to.wait(Event::record(from));
    } catch (...) {  // the allocator must not reuse dst's block before the copy has finished
      allocator.record_stream(dst.storage()->data(), native);
      throw;
    }
  }
  const cudaStream_t stream = stream_for({&src});
  native->runtime().copy(dst.raw_ptr(), src.raw_ptr(), src.nbytes(), stream);
  from.synchronize();
}

// Transfers elements in the destination's layout and dtype. A dst with gaps or overlaps is written through a
// dense copy on its device.
void copy_between_devices(const Tensor& dst, const Tensor& src) {
  if (!dst.is_dense()) {
    const Tensor dense = empty(dst.shape(), {dst.dtype(), dst.device()});
    copy_between_devices(dense, src);
    return raw::copy_kernel(dst, dense);
  }
  if (src.dtype() == dst.dtype() && src.strides() == dst.strides()) return move_bytes(dst, src);
  const Tensor like = empty_strided(dst.shape(), dst.strides(), {dst.dtype(), src.device()});
  raw::copy_kernel(like, src);
  move_bytes(dst, like);
}

void copy_cuda(const Tensor& dst, const Tensor& src) {
  if (dst.device() != src.device()) return copy_between_devices(dst, src);
  const ElementwiseArgs o = operands_of({&dst, &src});
  copy("copy", o.index, o.views.data(), o.stream);
}

void cat_cuda(const Tensor& out, const std::vector<Tensor>& xs, int64_t dim) {
  std::vector<StridedCopy> copies;
  int64_t start = 0;  // of the next tensor along dim
  cudaStream_t stream = nullptr;
  for (const Tensor& x : xs) {
    if (x.numel() == 0) continue;
    const Tensor range = raw::narrow(out, dim, start, x.size(dim));
    const ElementwiseArgs o = operands_of({&range, &x});
    copies.push_back({o.index, {o.views[0], o.views[1]}});
    stream = o.stream;
    start += x.size(dim);
  }
  copy_all("cat", copies, stream);
}

void copy_each_cuda(const Tensor& some, const std::vector<Tensor>& dst, const std::vector<Tensor>& src) {
  std::vector<const Tensor*> operands = {&some};
  std::vector<ArraysOfTensor<2>> arrays;
  for (size_t i = 0; i < dst.size(); ++i) {
    operands.insert(operands.end(), {&dst[i], &src[i]});
    arrays.push_back({{dst[i].raw_ptr(), src[i].raw_ptr()}, src[i].numel()});
  }
  copy_each("copy_", dst[0].dtype(), src[0].dtype(), arrays, stream_for(operands));
}

// Converts `value` to dst's dtype on the host, and writes it to all elements.
void fill_cuda(const Tensor& dst, Number value) {
  const Tensor element = empty({}, {.dtype = dst.dtype()});
  raw::fill_kernel.cpu(element, value);
  // Elements that share an address (dims of stride 0) are written once.
  Shape shape = dst.shape();
  for (int d = 0; d < dst.dim(); ++d)
    if (dst.strides()[d] == 0) shape[d] = 1;
  const Tensor apart = view_as_strided(dst, shape, dst.strides(), dst.impl().offset);
  const ElementwiseArgs o = operands_of({&apart});
  fill("fill_", o.index, o.views[0], element.raw_ptr(), o.stream);
}

// out[i] = start + i step; `out` is row-major.
void arange_cuda(const Tensor& out, double start, double step) {
  arange("arange", view_of(out), out.numel(), start, step, stream_for({&out}));
}

void linspace_cuda(const Tensor& out, double start, double end) {
  linspace("linspace", view_of(out), out.numel(), start, end, stream_for({&out}));
}

[[maybe_unused]] const bool is_set =
    (raw::copy_kernel.cuda = &copy_cuda, raw::copy_each_kernel.cuda = &copy_each_cuda,
     raw::cat_kernel.cuda = &cat_cuda, raw::fill_kernel.cuda = &fill_cuda,
     raw::arange_kernel.cuda = &arange_cuda, raw::linspace_kernel.cuda = &linspace_cuda, true);

}  // namespace
}  // namespace gradus::cuda
