// Copies between host and device memory on the device's current stream. Errors of the device describe the tensor.
#include "gradus/tensor/host_copy.h"

#include <algorithm>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::internal {
namespace {

// Returns f(). A DeviceFailure from f gets x's description.
template <class F> auto annotate_failures(const Tensor& x, F&& f) {
  try {
    return f();
  } catch (DeviceFailure& e) {
    e.name_tensors(describe(x));
    throw;
  }
}

// Copies the memory from x's first to its last element to the host, and waits.
Tensor copy_to_host(const Tensor& x) {
  const Device device = x.device();
  int64_t first = 0, last = 0;  // range of element offsets, relative to x's offset
  for (int d = 0; d < x.dim(); ++d) {
    const int64_t extent = (x.shape()[d] - 1) * x.strides()[d];
    (extent < 0 ? first : last) += extent;
  }
  const int64_t size = size_of(x.dtype()), bytes = x.numel() == 0 ? 0 : (last - first + 1) * size;
  Ref<Storage> host = Storage::allocate(kCPU, bytes);
  if (bytes > 0) {
    const auto stream = current_native_stream(device);
    stream->runtime().copy(host->data(), static_cast<const char*>(x.raw_ptr()) + first * size, bytes,
                           stream->handle());
  }
  current_stream(device).synchronize();
  return Tensor(make_ref<TensorImpl>(std::move(host), -first, x.shape(), x.strides(), x.dtype()));
}

}  // namespace

Tensor in_host_memory(const Tensor& x, const char* op) {
  const Device device = x.device();
  if (device.type == DeviceType::kMeta) throw DeviceError(op, "a meta tensor has no data: ", describe(x));
  refuse_capture(op, "it reads values on the host, which does not take part in a replay");
  if (device.type == DeviceType::kCPU) {
    synchronize(device);
    return x;
  }
  const OpCall call(op);
  return annotate_failures(x, [&] { return copy_to_host(x); });
}

void copy_from_host(const Tensor& to, const Tensor& from, const char* op) {
  if (to.numel() == 0) return;
  const OpCall call(op);
  annotate_failures(to, [&] {
    const auto stream = current_native_stream(to.device());
    stream->runtime().copy(to.raw_ptr(), from.raw_ptr(), from.nbytes(), stream->handle());
  });
}

}  // namespace gradus::internal
