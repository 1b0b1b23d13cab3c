// launch() runs one kernel call by the device of its first argument (the result): nothing on meta, or if
// another argument is meta and Context::skip_meta_kernels is set; in the calling thread on cpu:0; as a queued
// call on the streams of other CPU devices; a CUDA kernel function launches asynchronously itself. The
// observer (profiler) and the capture of the thread receive the call. Arguments are type-erased pointers
// (Argument), which must live until launch() returns; a queued call copies them.
#include "gradus/tensor/kernel.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/stored_call.h"

namespace gradus {

void throw_no_kernel(const char* op, Device device) {
  if (device.type != DeviceType::kCUDA) throw DeviceError(op, "has no kernel for ", device);
  internal::runtime_of(device, op);
  throw DeviceError(op, "has no kernel for ", device, " yet: compute it on the CPU, to(x, kCPU)");
}

namespace internal {
namespace {

// Returns "f32[2,3] cuda:0, f32[3] cuda:0", with up to 6 tensors and the number of others.
std::string describe(const TensorPointers& tensors) {
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, tensors.size()); ++i)
    text += (i ? ", " : "") + gradus::describe(*tensors[i]);
  if (tensors.size() > kShown) text += concat(" and ", tensors.size() - kShown, " more");
  return text;
}

}  // namespace

void launch(const KernelCall& call) {
  const Device device = static_cast<const Tensor*>(call.arguments[0].value)->device();
  if (device.type == DeviceType::kMeta) {
    if (Observer* o = Context::current().observer.get()) o->meta_kernel_launched(call.op, tensors_of(call));
    return;
  }
  if (!call.kernel) throw_no_kernel(call.op, device);
  if (const Capture* capture = recording_capture(); capture && capture->device() != device)
    throw StateError(call.op, "cannot be captured: it computes on ", device, " in a step on ",
                     capture->device());
  const auto is_meta = [](const Tensor* x) { return x->device().type == DeviceType::kMeta; };
  if (Context::current().skip_meta_kernels && std::ranges::any_of(tensors_of(call), is_meta)) return;
  Ref<Observer> observer(gradus::observer());
  int64_t range = -1;
  if (observer) {
    const TensorPointers tensors = tensors_of(call);
    range = observer->announce({.kind = RangeKind::kKernel, .name = call.op, .tensors = tensors});
  }
  if (device.type == DeviceType::kCPU) {
    const Stream stream = current_stream(device);
    // The range begins and ends on the stream's thread.
    if (!stream.is_inline())
      return stream.enqueue([observer, range, queued = std::make_shared<const StoredCall>(call)] {
        const RunningRange running(observer, range);
        queued->run();
      });
  }
  const RunningRange running(std::move(observer), range);
  {
    const CapturePause pause;  // a kernel that calls ops is one call
    try {
      call.run(call.kernel, call.arguments.data());
    } catch (DeviceFailure& e) {
      e.name_tensors(describe(tensors_of(call)));
      throw;
    }
  }
  if (Capture* capture = recording_capture()) capture->add(call);
}

}  // namespace internal
}  // namespace gradus
