// What the emulated entry points of the CUDA runtime have in common: errors, and who may call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "gradus/tensor/cuda/emulated/streams.h"

namespace gradus::cuda::emulated {

// Makes the n-th call from now on that may fail (0: the next) fail with `status`. For tests.
void fail_call(int64_t n, cudaError_t status);
// The status that a test has asked for, for this call.
cudaError_t injected_failure();
// Remembers an error as the thread's last one. cudaErrorNotReady never becomes it, as recorded.
cudaError_t answer(cudaError_t status);

// A call that is refused after a sticky error.
template <class F> cudaError_t call(F&& f) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  if (runtime.sticky != cudaSuccess) return answer(runtime.sticky);
  if (const cudaError_t status = injected_failure(); status != cudaSuccess) return answer(status);
  return answer(std::forward<F>(f)(runtime));
}
// A call that needs no device, or a working one.
template <class F> cudaError_t call_always(F&& f) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  return answer(std::forward<F>(f)(runtime));
}

}  // namespace gradus::cuda::emulated
