// Streams, events, host functions and kernel launches of the emulated CUDA runtime. Statuses are those
// recorded on an H100 (hardware.md).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/grid.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/queued_launch.h"

namespace gradus::cuda::emulated {

cudaError_t enqueue_launch(QueuedLaunch launch, cudaStream_t handle) {
  const auto queue = [&](Runtime& runtime) {
    const cudaStream_t stream = runtime.stream(handle);
    cudaError_t status = check_shape(launch.blocks, launch.threads, launch.shared_bytes);
    if (status == cudaSuccess && !may_run_kernels(stream->device)) status = cudaErrorNoKernelImageForDevice;
    if (status != cudaSuccess) return runtime.captures.invalidate(stream), status;
    if (status = runtime.captures.check_work(stream); status != cudaSuccess) return status;
    runtime.enqueue(
        stream, {[device = stream->device, launch = std::move(launch)] {
          run_grid({launch.op, launch.kernel, launch.call, launch.arguments.get(), launch.argument_bytes,
                    launch.blocks, static_cast<int>(launch.threads), launch.shared_bytes, device});
        }});
    return cudaSuccess;
  };
  return call(queue, "launch");
}

}  // namespace gradus::cuda::emulated

using namespace gradus::cuda::emulated;  // NOLINT

namespace {

constexpr int kHighestPriority = -5;

cudaError_t create_stream(cudaStream_t* made, unsigned flags, int priority,
                          const char* function = __builtin_FUNCTION()) {
  const auto create = [&](Runtime& runtime) {
    if (!made || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *made = runtime.create_stream(flags, std::clamp(priority, kHighestPriority, 0));
    return cudaSuccess;
  };
  return call(create, function);
}

cudaError_t create_event(cudaEvent_t* made, unsigned flags, const char* function = __builtin_FUNCTION()) {
  const auto create = [&](Runtime& runtime) {
    // An event between processes must be untimed.
    const bool known = flags <= 3 || flags == (cudaEventInterprocess | cudaEventDisableTiming);
    if (!made || !known) return cudaErrorInvalidValue;
    *made = new CUevent_st{flags, current_device};
    ++runtime.events;
    return cudaSuccess;
  };
  return call(create, function);
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t* made) { return create_stream(made, 0, 0); }
cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) {
  return create_stream(made, flags, 0);
}
cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int priority) {
  return create_stream(made, flags, priority);
}
cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&](Runtime&) {
    if (least) *least = 0;
    if (greatest) *greatest = kHighestPriority;
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call([&](Runtime& runtime) {
    *priority = runtime.stream(stream)->priority;
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return call_always([&](Runtime& runtime) {
    if (!device) return cudaErrorInvalidValue;
    *device = runtime.stream(stream)->device;
    return cudaSuccess;
  });
}
// Does not wait: queued work still runs.
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  return call_to_destroy([&](Runtime& runtime) {
    if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
      return cudaErrorInvalidResourceHandle;
    if (runtime.stream(stream) != stream) return cudaErrorInvalidResourceHandle;
    runtime.captures.leave(stream);
    runtime.destroy_stream(stream);
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  return call([&](Runtime& runtime) {
    const cudaStream_t s = runtime.stream(stream);
    if (const cudaError_t status = runtime.captures.check_wait(s); status != cudaSuccess) return status;
    runtime.run_until(runtime.end_of(s));
    return runtime.sticky;
  });
}
cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
  return call([&](Runtime& runtime) {
    const cudaStream_t s = runtime.stream(stream);
    if (const cudaError_t status = runtime.captures.check_wait(s); status != cudaSuccess) return status;
    runtime.step();  // so that a loop of queries ends
    return runtime.is_idle(s) ? cudaSuccess : cudaErrorNotReady;
  });
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call([&](Runtime& runtime) {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (flags > cudaEventWaitExternal) return cudaErrorInvalidValue;
    const cudaStream_t s = runtime.stream(stream);
    if (s->capture || event->capture) return runtime.captures.wait(s, event, flags);
    if (const cudaError_t status = runtime.captures.check_work(s); status != cudaSuccess) return status;
    if (event->recorded) runtime.wait_for(s, event->recorded);
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call([&](Runtime& runtime) {
    if (!function) return cudaErrorInvalidValue;
    const cudaStream_t s = runtime.stream(stream);
    if (const cudaError_t status = runtime.captures.check_work(s); status != cudaSuccess) return status;
    runtime.enqueue(s, {[=] { function(data); }, true});
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  return call([](Runtime& runtime) {
    if (const cudaError_t status = runtime.captures.check_wait(current_device); status != cudaSuccess)
      return status;
    runtime.run_until_idle(current_device);
    return runtime.sticky;
  });
}

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t* made) { return create_event(made, 0); }
cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
  return create_event(made, flags);
}
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  return call_to_destroy([&](Runtime& runtime) {
    if (!event) return cudaErrorInvalidResourceHandle;
    delete event;
    --runtime.events;
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&](Runtime& runtime) {
    if (!event) return cudaErrorInvalidResourceHandle;
    const cudaStream_t s = runtime.stream(stream);
    if (const cudaError_t status = runtime.captures.check_work(s); status != cudaSuccess) return status;
    if (s->capture) return runtime.captures.record(event, s), cudaSuccess;
    event->capture = nullptr;
    event->recorded = runtime.end_of(s);
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  return call([&](Runtime& runtime) {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t status = runtime.captures.check_wait(event); status != cudaSuccess) return status;
    if (event->recorded && !event->recorded->reached) runtime.step();
    return event->recorded && !event->recorded->reached ? cudaErrorNotReady : cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Runtime& runtime) {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t status = runtime.captures.check_wait(event); status != cudaSuccess) return status;
    if (const std::shared_ptr<End> end = event->recorded) runtime.run_until(end);
    return runtime.sticky;
  });
}
// Measures the emulator's clock: the host's, plus Runtime::seconds_ahead.
cudaError_t CUDARTAPI cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  return call([&](Runtime&) {
    if (!ms) return cudaErrorInvalidValue;
    for (const cudaEvent_t e : {from, to})
      if (e && e->capture) return cudaErrorCapturedEvent;
    for (const cudaEvent_t e : {from, to})
      if (!e || !e->recorded || e->flags & cudaEventDisableTiming) return cudaErrorInvalidResourceHandle;
    if (!from->recorded->reached || !to->recorded->reached) return cudaErrorNotReady;
    *ms = static_cast<float>((to->recorded->seconds - from->recorded->seconds) * 1e3);
    return cudaSuccess;
  });
}

}  // extern "C"
