// DeviceCopies: copies the tensors of a batch into pinned (page-locked) host memory, then to the device on a
// separate stream. Pinned blocks come from the caching allocator PinnedMemory, which does not reuse a block
// before the copies from it have completed. For devices other than GPUs, pin() changes nothing. Workers call
// pin(), the loop's thread the other functions.
#include "gradus/data/internal/device_copies.h"

#include <cstring>
#include <utility>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/pinned_memory.h"

namespace gradus::data::internal {
namespace {

using gradus::internal::PinnedMemory;

template <class F> void for_each_tensor(Batch& batch, F f) {
  for (Tensor* x : {&batch.input, &batch.target})
    if (x->defined()) f(*x);
}

// Returns the device. Errors: DeviceError, thrown by the calls below, if it does not exist.
Device checked(Device device) {
  if (device.type == DeviceType::kCUDA)
    gradus::internal::runtime_of(device, "DataLoader");
  else
    (void)memory_stats(device);
  return device;
}

// Returns a copy in pinned memory, or x if pinned memory is exhausted or x is on a device.
Tensor pinned(const Tensor& x, Device device) {
  if (x.device() != kCPU || x.numel() == 0) return x;
  const Tensor dense = x.is_dense() ? x : raw::contiguous(x);
  PinnedMemory& memory = PinnedMemory::of(device);
  void* const p = memory.allocate(device.index, dense.nbytes());
  if (!p) return x;
  Ref<Storage> block = Storage::adopt(kCPU, p, dense.nbytes(), [&memory, p] { memory.release(p); });
  std::memcpy(p, dense.raw_ptr(), static_cast<size_t>(dense.nbytes()));
  return Tensor(make_ref<TensorImpl>(std::move(block), 0, dense.shape(), dense.strides(), dense.dtype()));
}

}  // namespace

DeviceCopies::DeviceCopies(Device device) : device_(checked(device)), stream_(Stream::create(device)) {}

Batch DeviceCopies::pin(Batch batch) const {
  if (device_.type == DeviceType::kCUDA) for_each_tensor(batch, [&](Tensor& x) { x = pinned(x, device_); });
  return batch;
}

DeviceCopies::Queued DeviceCopies::queue(Batch batch) const {
  const StreamScope scope(stream_);
  const auto native = gradus::internal::native_stream(stream_);  // null for devices other than GPUs
  for_each_tensor(batch, [&](Tensor& x) {
    const Tensor from = std::exchange(x, raw::to(x, device_));
    if (native) PinnedMemory::of(device_).record_use(from.storage()->data(), native->handle());
  });
  return {std::move(batch), Event::record(stream_)};
}

Batch DeviceCopies::receive(Queued queued) const {
  current_stream(device_).wait(queued.copied);
  return std::move(queued.batch);
}

}  // namespace gradus::data::internal
