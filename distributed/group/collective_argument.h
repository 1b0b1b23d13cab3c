// Tensor arguments of collectives: checks, CallRecords, and the memory blocks that Collectives read or write.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/call_record.h"
#include "gradus/distributed/transport/backend.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist::internal {

// `op` and `what` (the argument's name) are for errors.
// Errors: ValueError if x is undefined; DeviceError if x is on the meta device.
void check_has_data(std::string_view op, std::string_view what, const Tensor& x);

// Blocks until x's device has done the work queued on its current stream (cpu:1 and up have queues). Needless
// for a new tensor: queued kernels keep their tensors alive, so no kernel uses its memory.
void wait_for_device(const Tensor& x);
// Returns x's elements, row-major, in host memory: x itself after wait_for_device, or a copy of what lies on a GPU.
Tensor on_host(const Tensor& x);
// Returns x, row-major, for a call to read: on the host as on_host(), on a GPU there.
Tensor readable(const Tensor& x);
std::vector<Tensor> readable(std::span<const Tensor> xs);

// The tensors of one call. Functions return row-major tensors for the call to use.
// Errors: as for check_has_data; StateError if an open recording tracks x, which would miss the call; DeviceError for
// tensors in host memory and on GPUs, or on two GPUs, in one call.
class CallTensors {
 public:
  explicit CallTensors(const char* op) : op_(op) {}

  // For a tensor that the call reads.
  Tensor input(std::string_view what, const Tensor& x);
  // For one that it writes, and maybe reads; or that other ranks write, if not `is_written` here.
  // Errors: also ShapeError unless x is row-major.
  Tensor output(std::string_view what, const Tensor& x, bool is_written = true);
  std::vector<Tensor> inputs(const char* what, const std::vector<Tensor>& xs);
  std::vector<Tensor> outputs(const char* what, const std::vector<Tensor>& xs);

  // The tensors' GPU, or kCPU.
  Device device() const { return device_.value_or(kCPU); }
  const std::vector<Tensor>& on_gpu() const { return on_gpu_; }  // all tensors, if they are on a GPU
  std::vector<Tensor>& written() { return written_; }

 private:
  Tensor add(std::string_view what, const Tensor& x);

  const char* op_;
  std::optional<Device> device_;
  std::vector<Tensor> on_gpu_, written_;
};

// Copies from[i] to to[i], row-major tensors of one dtype and numel; on GPUs queued on the current stream.
void copy_row_major(const std::vector<Tensor>& to, const std::vector<Tensor>& from);
// Copy the elements of xs, one after the other, to `flat` and back. [numel of all]; tensors are row-major. On GPUs the
// copies are queued.
void pack(const Tensor& flat, const std::vector<Tensor>& xs);
void unpack(const std::vector<Tensor>& xs, const Tensor& flat);
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
