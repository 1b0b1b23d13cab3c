// Tensor arguments of collectives: checks, CallRecords, and memory blocks that a Backend reads or writes.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/call_record.h"
#include "gradus/distributed/transport/backend.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist::internal {

// `op` and `what` (the argument's name) are for errors.
// Errors: ValueError if x is undefined; DeviceError if x is not in host memory.
void check_in_host_memory(std::string_view op, std::string_view what, const Tensor& x);
// Errors: DeviceError unless `device`, that of a result, is a CPU.
void check_in_host_memory(std::string_view op, Device device);

// Blocks until x's device has done the work queued on its current stream (cpu:1 and up have queues). Needless
// for a new tensor: queued kernels keep their tensors alive, so no kernel uses its memory.
void wait_for_device(const Tensor& x);

// check_input checks a tensor that a call only reads, and returns x, or a row-major copy. check_output checks
// a tensor that a call writes. Both then call wait_for_device.
// Errors: as for check_in_host_memory; StateError if an open recording tracks x, which would miss the call.
Tensor check_input(std::string_view op, std::string_view what, const Tensor& x);
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
  // Returns an uninitialized row-major tensor.
  Tensor make(Device device) const { return empty(shape, {.dtype = dtype, .device = device}); }
  bool operator==(const TensorSpec&) const = default;
};

// Returns the record of a call with input x. `root`: index in the group; -1: the op has no root.
CallRecord make_record(Op op, const Tensor& x, ReduceOp reduce = ReduceOp::kSum, int root = -1);

// The memory of row-major tensors, which the caller keeps alive.
inline Block block(const Tensor& x) { return {x.raw_ptr(), size_t(x.nbytes())}; }
inline ConstBlock const_block(const Tensor& x) { return {x.raw_ptr(), size_t(x.nbytes())}; }
std::vector<Block> blocks(std::span<const Tensor> xs);
std::vector<ConstBlock> const_blocks(std::span<const Tensor> xs);

}  // namespace gradus::dist::internal
