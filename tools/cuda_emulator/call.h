// Common to the emulated entry points of CUDA and its libraries: wrappers that check whether a call is
// allowed, CUDA's sticky and last errors, and failure injection for tests.
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

// Makes the n-th call from now on (0: the next) fail: a function of the runtime with `status`, a function of
// a library with its usual error status. n < 0 cancels the failure.
void fail_call(int64_t n, cudaError_t status);
// Makes `times` calls of one function fail, starting with its n-th call from now on. `status` is a value of
// the function's own status type.
void fail_call_of(std::string function, int64_t n, int status, int64_t times = 1);
// Makes every call fail from now on, as after a kernel that had a fault.
void lose_device(cudaError_t status);
// Sets the CUDA version that the driver supports: 12080 for 12.8; 0 for no driver. Below the runtime's
// version no device can be used.
void set_driver_version(int version);
// Sets a device's compute capability. Kernels run on 8.0 and later.
void set_compute_capability(int device, int major, int minor);
// Returns the number of calls of each function since the last take_calls().
std::map<std::string_view, int64_t> take_calls();

// ---- for entry points, with the runtime's lock

bool is_driver_old();
bool may_run_kernels(int device);
// Counts a call. Returns the failure that a test requested, or 0, which is success in all libraries.
// `of_library` is the usual error status of a library's function; 0 for functions of the CUDA runtime.
int injected_failure(const char* function, int of_library = 0);
inline cudaError_t injected_error(const char* function) {
  return static_cast<cudaError_t>(injected_failure(function));
}
// Stores an error as the thread's last one, except for cudaErrorNotReady, as recorded on an H100. Returns
// `status`.
cudaError_t answer(cudaError_t status);

// Runs f(runtime) with the runtime's lock. Fails without running f in a host function, after a sticky error,
// and if a failure is injected.
template <class F> cudaError_t call(F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  if (runtime.sticky != cudaSuccess) return answer(runtime.sticky);
  if (const cudaError_t status = injected_error(function); status != cudaSuccess) return answer(status);
  return answer(std::forward<F>(f)(runtime));
}
// The same for calls that stream captures forbid, because a graph would not repeat them.
template <class F> cudaError_t unsafe_call(F&& f, const char* function = __builtin_FUNCTION()) {
  return call(
      [&](Runtime& runtime) {
        const cudaError_t status = runtime.captures.check_unsafe();
        return status == cudaSuccess ? std::forward<F>(f)(runtime) : status;
      },
      function);
}
// The same for calls that destroy an object: f runs even if the call returns an error.
template <class F> cudaError_t call_to_destroy(F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  const cudaError_t injected = injected_error(function), status = std::forward<F>(f)(runtime);
  return answer(runtime.sticky != cudaSuccess ? runtime.sticky : injected != cudaSuccess ? injected : status);
}
// The same for calls that work after a sticky error.
template <class F> cudaError_t call_about_devices(F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  if (const cudaError_t status = injected_error(function); status != cudaSuccess) return answer(status);
  return answer(std::forward<F>(f)(runtime));
}
// The same for queries, which work after a sticky error and never get an injected failure.
template <class F> cudaError_t call_always(F&& f) {
  if (in_host_function) return cudaErrorNotPermitted;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  return answer(std::forward<F>(f)(runtime));
}

}  // namespace gradus::cuda::emulated
