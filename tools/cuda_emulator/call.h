// What the emulated entry points of CUDA and its libraries have in common: errors, who may call, and failures
// that tests want.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "gradus/tools/cuda_emulator/streams.h"

namespace gradus::cuda::emulated {

// ---- for tests

// Makes the n-th call from now on (0: the next) fail: a function of the runtime with `status`, a library's
// with the status that it mostly has then. Below 0, none shall fail any more.
void fail_call(int64_t n, cudaError_t status);
// Makes `times` calls of one function fail, from its n-th from now on. `status` is of the
// function's own kind.
void fail_call_of(std::string function, int64_t n, int status, int64_t times = 1);
// Makes every call fail from now on, as after a kernel that had a fault.
void lose_device(cudaError_t status);
// The version of CUDA that the driver is for: 12080 for 12.8; 0 for no driver. Below the runtime's version no
// device can be used.
void set_driver_version(int version);
// Kernels are compiled for 8.0 and more.
void set_compute_capability(int device, int major, int minor);
// Returns how often each function was called since the last take.
std::map<std::string_view, int64_t> take_calls();

// ---- for entry points, with the runtime's lock

bool is_driver_old();
bool may_run_kernels(int device);
// Counts a call. Returns the status that a test wants of it; 0, which is success everywhere, for none.
// `of_library` is what a library's function mostly fails with.
int injected_failure(const char* function, int of_library = 0);
inline cudaError_t injected_error(const char* function) {
  return static_cast<cudaError_t>(injected_failure(function));
}
// Remembers an error as the thread's last one. cudaErrorNotReady never becomes it, as recorded.
cudaError_t answer(cudaError_t status);

// A call that is refused after a sticky error.
template <class F> cudaError_t call(F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  if (runtime.sticky != cudaSuccess) return answer(runtime.sticky);
  if (const cudaError_t status = injected_error(function); status != cudaSuccess) return answer(status);
  return answer(std::forward<F>(f)(runtime));
}
// One that a graph would not repeat: captures forbid it.
template <class F> cudaError_t unsafe_call(F&& f, const char* function = __builtin_FUNCTION()) {
  return call(
      [&](Runtime& runtime) {
        const cudaError_t status = runtime.captures.check_unsafe();
        return status == cudaSuccess ? std::forward<F>(f)(runtime) : status;
      },
      function);
}
// A call that destroys something, whatever it answers.
template <class F> cudaError_t call_to_destroy(F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  const cudaError_t injected = injected_error(function), status = std::forward<F>(f)(runtime);
  return answer(runtime.sticky != cudaSuccess ? runtime.sticky : injected != cudaSuccess ? injected : status);
}
// A call that needs no working device.
template <class F> cudaError_t call_about_devices(F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  if (const cudaError_t status = injected_error(function); status != cudaSuccess) return answer(status);
  return answer(std::forward<F>(f)(runtime));
}
// A call that only looks something up.
template <class F> cudaError_t call_always(F&& f) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  return answer(std::forward<F>(f)(runtime));
}

}  // namespace gradus::cuda::emulated
