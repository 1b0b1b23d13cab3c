// Errors about values that kernels find while they run, such as a class out of range: thrown when the host
// next waits for the stream. Note [Value reports] in value_reports.h. Functions are thread-safe.
//
//   void throw_invalid_class(const ReportedValue& v) { throw IndexError("cross_entropy", ...); }
//   launch(op, kernel, grid, stream, ..., reports_of(x, stream, &throw_invalid_class, classes));
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

#include "gradus/tensor/cuda/runtime/value_reports.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// The invalid value that a kernel reported (report.h).
struct ReportedValue {
  int64_t position;        // of the value, as the kernel counts
  uint64_t bits;           // of the value, an int64_t or a double
  int64_t limit, per_row;  // as passed to reports_of()

  int64_t as_integer() const { return static_cast<int64_t>(bits); }
  double as_double() const { return std::bit_cast<double>(bits); }
};
// Throws the error for a reported value.
using ValueErrorHandler = void (*)(const ReportedValue&);
// Returns the kernel argument by which the next launch on `stream`, a stream of x's device, reports.
// `thrower` throws the error, which names the op that the user called at the time of this call. `limit` and
// `per_row` (positions of a row) are passed on to `thrower`.
ValueReports reports_of(const Tensor& x, cudaStream_t stream, ValueErrorHandler thrower, int64_t limit,
                        int64_t per_row = 1);
// Throws and clears the error of the stream's reported value, if any. The host has waited for the stream.
void throw_kernel_errors(cudaStream_t stream);
// The same for one of a device's streams, including destroyed ones: one error per call.
void throw_kernel_errors_on_device(int device);
// Must be called before a stream is destroyed. Its reports stay until throw_kernel_errors_on_device().
void retire_reports(cudaStream_t stream) noexcept;

}  // namespace gradus::cuda
