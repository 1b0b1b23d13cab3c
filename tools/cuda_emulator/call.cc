// Implementation of call.h: injected failures, counts of calls, and the last error of each thread.
#include "gradus/tools/cuda_emulator/call.h"

namespace gradus::cuda::emulated {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

bool is_sticky(cudaError_t status) {
  return status == cudaErrorIllegalAddress || status == cudaErrorMisalignedAddress ||
         status == cudaErrorLaunchFailure || status == cudaErrorAssert;
}

// A failure that a test requested.
struct Failure {
  std::string function;  // empty: any
  int64_t calls;         // number of successful calls before the failure; below 0: no failure
  int64_t times;         // number of failing calls
  int status;
};
// Guarded by the runtime's lock, which callers of injected_failure hold.
struct Calls {
  Failure failure{"", -1, 0, 0};
  std::map<std::string_view, int64_t> made;
};
Calls& calls() {
  static Calls& all = *new Calls;  // streams may be used while the program ends
  return all;
}

void want(Failure failure) {
  const auto lock = Runtime::get().lock();
  calls().failure = std::move(failure);
}

}  // namespace

void fail_call(int64_t n, cudaError_t status) { want({"", n, 1, status}); }
void fail_call_of(std::string function, int64_t n, int status, int64_t times) {
  want({std::move(function), n, times, status});
}
void lose_device(cudaError_t status) {
  const auto lock = Runtime::get().lock();
  Runtime::get().sticky = status;
}
std::map<std::string_view, int64_t> take_calls() {
  const auto lock = Runtime::get().lock();
  return std::exchange(calls().made, {});
}

// `of_library`: the usual error status of a library's function; 0 for the runtime's.
int injected_failure(const char* function, int of_library) {
  ++calls().made[function];
  if (!of_library && is_driver_old() && function != std::string_view("cudaDriverGetVersion"))
    return cudaErrorInsufficientDriver;
  Failure& wanted = calls().failure;
  const bool any = wanted.function.empty();
  if (wanted.calls < 0 || (!any && wanted.function != function)) return 0;
  if (wanted.calls > 0) return --wanted.calls, 0;
  if (--wanted.times == 0) wanted.calls = -1;
  if (of_library) return any ? of_library : wanted.status;
  const auto status = static_cast<cudaError_t>(wanted.status);
  if (is_sticky(status)) Runtime::get().sticky = status;
  return status;
}

cudaError_t answer(cudaError_t status) {
  if (status != cudaSuccess && status != cudaErrorNotReady) last_error = status;
  return status;
}

}  // namespace gradus::cuda::emulated

extern "C" {

cudaError_t CUDARTAPI cudaGetLastError() {
  return std::exchange(gradus::cuda::emulated::last_error, cudaSuccess);
}
cudaError_t CUDARTAPI cudaPeekAtLastError() { return gradus::cuda::emulated::last_error; }

}  // extern "C"
