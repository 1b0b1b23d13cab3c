// Errors of values that kernels find when they run, thrown where the host waits. Note [Value reports]
// (value_reports.h) says how they reach the host.
//
//   void throw_invalid_class(const FoundValue& v) { throw IndexError("cross_entropy", ...); }
//   launch(op, kernel, grid, stream, ..., reports_of(x, stream, &throw_invalid_class, classes));
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

#include "gradus/tensor/cuda/runtime/value_reports.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// What a kernel has found.
struct FoundValue {
  int64_t position;
  uint64_t bits;
  int64_t limit, per_row;

  int64_t as_integer() const { return static_cast<int64_t>(bits); }
  double as_double() const { return std::bit_cast<double>(bits); }
};
using ThrowFound = void (*)(const FoundValue&);

// Returns where the next launch on the stream of x's device reports. `thrower` throws the error, which names
// the op that the user has called now.
ValueReports reports_of(const Tensor& x, cudaStream_t stream, ThrowFound thrower, int64_t limit,
                        int64_t per_row = 1);

// Throws what the stream's kernels have found since the last call. The host has waited for the stream.
void throw_kernel_errors(cudaStream_t stream);
// The same for all streams of a device, one error in each call, also for those that were destroyed.
void throw_kernel_errors_on_device(int device);
// Called before a stream is destroyed.
void retire_reports(cudaStream_t stream) noexcept;

}  // namespace gradus::cuda
