// launch() runs one kernel call by the device of its first argument (the result): nothing on meta, or if
// another argument is meta and Context::skip_meta_kernels is set; in the calling thread on cpu:0; as a queued
// call on the streams of other CPU devices; a CUDA kernel function launches asynchronously itself. An
// observer (profiler) of the thread receives the call. Arguments are type-erased pointers (Argument), which
// must live until launch() returns; a queued call copies them.
#include "gradus/tensor/kernel.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/runtime/device_runtime.h"

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

// Returns the defined tensors among the arguments, without ownership.
TensorPointers tensors_of(const KernelCall& call) {
  TensorPointers tensors;
  for (const Argument& argument : call.arguments) argument.ops->collect(tensors, argument.value);
  return tensors;
}

// A call on a queue. Owns copies of the arguments, so the memory of tensors lives until the kernel has run.
class QueuedCall {
 public:
  // If a copy throws, the destructor runs all the same, because the delegated constructor has ended.
  explicit QueuedCall(const KernelCall& call) : QueuedCall(call.kernel, call.run) {
    constexpr size_t kAlign = alignof(std::max_align_t);
    size_t bytes = 0;
    for (const Argument& x : call.arguments) bytes += (x.ops->size + kAlign - 1) / kAlign * kAlign;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    copies_.reserve(call.arguments.size());
    std::byte* to = memory_.get();
    for (const Argument& x : call.arguments) {
      x.ops->copy(to, x.value);
      copies_.push_back({to, x.ops});
      to += (x.ops->size + kAlign - 1) / kAlign * kAlign;
    }
  }
  ~QueuedCall() {
    for (const Argument& x : copies_) x.ops->destroy(const_cast<void*>(x.value));
  }
  QueuedCall(const QueuedCall&) = delete;
  QueuedCall& operator=(const QueuedCall&) = delete;
  void run() const { run_(kernel_, copies_.data()); }

 private:
  QueuedCall(void (*kernel)(), void (*run)(void (*)(), const Argument*)) : kernel_(kernel), run_(run) {}
  void (*kernel_)();
  void (*run_)(void (*)(), const Argument*);
  std::unique_ptr<std::byte[]> memory_;
  std::vector<Argument> copies_;
};

}  // namespace

void launch(const KernelCall& call) {
  const Device device = static_cast<const Tensor*>(call.arguments[0].value)->device();
  if (device.type == DeviceType::kMeta) {
    if (Observer* o = Context::current().observer.get()) o->meta_kernel_launched(call.op, tensors_of(call));
    return;
  }
  if (!call.kernel) throw_no_kernel(call.op, device);
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
      return stream.enqueue([observer, range, queued = std::make_shared<const QueuedCall>(call)] {
        const RunningRange running(observer, range);
        queued->run();
      });
  }
  const RunningRange running(std::move(observer), range);
  try {
    call.run(call.kernel, call.arguments.data());
  } catch (DeviceFailure& e) {
    e.name_tensors(describe(tensors_of(call)));
    throw;
  }
}

}  // namespace internal
}  // namespace gradus
