// Tensor arguments of collectives: checks, CallRecords, and memory blocks that a Backend reads or writes. Backends take
// host memory: tensors on GPUs are staged, that is copied to host memory, and results back.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/distributed/base/call_record.h"
#include "gradus/distributed/group/work.h"
#include "gradus/distributed/transport/backend.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::dist::internal {

// `op` and `what` (the argument's name) are for errors.
// Errors: ValueError if x is undefined; DeviceError if x is on the meta device.
void check_has_data(std::string_view op, std::string_view what, const Tensor& x);

// Blocks until x's device has done the work queued on its current stream (cpu:1 and up have queues). Needless
// for a new tensor: queued kernels keep their tensors alive, so no kernel uses its memory.
void wait_for_device(const Tensor& x);
// Returns x's elements, row-major, in host memory: x itself after wait_for_device, or a copy of what lies on a GPU.
Tensor on_host(const Tensor& x);
// The same for each tensor of a list. Copies of those on GPUs are queued together.
std::vector<Tensor> on_host(std::span<const Tensor> xs);

// The tensors of one call, as a backend reads and writes them. Functions return row-major tensors in host memory: the
// caller's, or copies for those on GPUs.
// Errors: as for check_has_data; StateError if an open recording tracks x, which would miss the call; DeviceError for
// tensors in host memory and on GPUs in one call.
class HostTensors {
 public:
  explicit HostTensors(const char* op) : op_(op) {}

  // For a tensor that the call reads.
  Tensor input(std::string_view what, const Tensor& x);
  // For one that it writes, or with `reads` also reads. Errors: also ShapeError unless x is row-major.
  Tensor output(std::string_view what, const Tensor& x, bool reads = false);
  // For one that it either reads or writes, on each rank another.
  Tensor input_or_output(std::string_view what, const Tensor& x, bool reads);
  std::vector<Tensor> inputs(const char* what, const std::vector<Tensor>& xs);
  std::vector<Tensor> outputs(const char* what, const std::vector<Tensor>& xs, bool read = false);

  // Where the tensors are: kCPU or kCUDA.
  DeviceType device() const { return device_; }
  // The caller's tensors on GPUs that the call writes.
  const std::vector<Tensor>& written() const { return written_; }
  // Returns those in host memory, and forgets them.
  std::vector<Tensor> take_written_on_host() {
    return device_ == DeviceType::kCPU ? std::exchange(written_, {}) : std::vector<Tensor>();
  }
  // Copies results to GPUs, on the calling thread's current streams. Call it once, when the backend has written them.
  void write_back() const;
  // Returns the work of the call: `done` after a write_back() now, or one whose first wait() calls it, on the waiting
  // thread. If nobody waits, or the call fails, tensors on GPUs stay as they are.
  Work write_back_after(Work done, bool async) &&;

 private:
  void check(std::string_view what, const Tensor& x, bool is_written);

  const char* op_;
  DeviceType device_ = DeviceType::kCPU;
  bool has_tensors_ = false;
  std::vector<Tensor> written_;
  // Of written_[i] on a GPU: what the backend writes, and when the call was made.
  std::vector<Tensor> host_;
  std::vector<Event> posted_;
};
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
