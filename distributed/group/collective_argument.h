// The tensors that collectives are given, for any device: checks, records, blocks of memory.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/call_record.h"
#include "gradus/distributed/transport/backend.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist::internal {

// Checks that x is in host memory.
// Errors: ValueError if x is undefined; DeviceError if x is not in host memory.
void check_in_host_memory(std::string_view op, std::string_view what, const Tensor& x);
// Checks the same of a device that a result is wanted on.
void check_in_host_memory(std::string_view op, Device device);

// Waits until x's device has done all work that is queued now on its current stream. A new tensor needs no
// wait: a queued kernel keeps its tensors alive, so their memory is not reused too early.
void wait_for_device(const Tensor& x);

// check_input and check_output both wait until x's device has written it.
// Errors: as for check_in_host_memory; StateError if an open recording follows x, since it would
// not see the call.

// Checks a tensor that a call only reads. Returns it, or a row-major copy.
Tensor check_input(std::string_view op, std::string_view what, const Tensor& x);
// Checks a tensor that a call writes.
// Errors: also ShapeError unless x is row-major.
void check_output(std::string_view op, std::string_view what, const Tensor& x);
// Errors: DTypeError unless all tensors have this dtype.
void check_dtypes(std::string_view op, DType dtype, std::span<const Tensor> xs);

// A tensor's dtype and shape.
struct TensorSpec {
  DType dtype = DType::kF32;
  Shape shape;

  TensorSpec() = default;
  explicit TensorSpec(const Tensor& x) : dtype(x.dtype()), shape(x.shape()) {}
  explicit TensorSpec(const CallRecord& record)
      : dtype(record.dtype), shape(std::span(record.dims, record.ndim)) {}
  Tensor make(Device device) const { return empty(shape, {.dtype = dtype, .device = device}); }
  bool operator==(const TensorSpec&) const = default;
};

// Returns the record of a call with x.
CallRecord make_record(Op op, const Tensor& x, ReduceOp reduce = ReduceOp::kSum, int root = -1);

inline Block block(const Tensor& x) { return {x.raw_ptr(), size_t(x.nbytes())}; }
inline ConstBlock const_block(const Tensor& x) { return {x.raw_ptr(), size_t(x.nbytes())}; }
std::vector<Block> blocks(std::span<const Tensor> xs);
std::vector<ConstBlock> const_blocks(std::span<const Tensor> xs);

}  // namespace gradus::dist::internal
