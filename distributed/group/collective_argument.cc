// Checks the tensors of collectives and point-to-point calls, and describes them to the backends as blocks of
// host memory. A tensor that a call reads may have any strides (check_input copies); one that a call writes
// must be row-major. In all functions `op` is the user's function and `what` the argument's name, for errors.
#include "gradus/distributed/group/collective_argument.h"

#include <algorithm>
#include <iterator>

#include "gradus/autograd/graph/record.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::dist::internal {
namespace {

// Errors: those of check_in_host_memory; StateError if x is recorded: the op would be missing from the graph.
void check(std::string_view op, std::string_view what, const Tensor& x) {
  check_in_host_memory(op, what, x);
  if (autograd::is_tracked(x)) {
    const bool message = op == "send" || op == "isend" || op == "recv" || op == "irecv";
    throw StateError(op, what, " is followed by an open recording, which sees nothing of this call: ",
                     message ? "use dist::remote_send and dist::remote_recv" : "use dist::functional",
                     ", or give detach(x): ", describe(x));
  }
}

}  // namespace

void check_in_host_memory(std::string_view op, std::string_view what, const Tensor& x) {
  if (!x) throw ValueError(op, what, " is undefined");
  refuse_capture(op, "a replay does not call other ranks");
  if (x.device().type != DeviceType::kCPU)
    throw DeviceError(op, what, " is not in host memory: ", describe(x));
}

void check_in_host_memory(std::string_view op, Device device) {
  if (device.type != DeviceType::kCPU)
    throw DeviceError(op, "expected a device whose memory is the host's, got ", device);
}

void wait_for_device(const Tensor& x) {
  if (x.device() != kCPU) Event::record(current_stream(x.device())).synchronize();
}

Tensor check_input(std::string_view op, std::string_view what, const Tensor& x) {
  check(op, what, x);
  Tensor input = raw::contiguous(x);
  wait_for_device(input);
  return input;
}

void check_output(std::string_view op, std::string_view what, const Tensor& x) {
  check(op, what, x);
  if (!x.is_row_major())
    throw ShapeError(op, what, " does not lie in row-major order, call contiguous(): ", describe(x));
  wait_for_device(x);
}

void check_dtypes(std::string_view op, DType dtype, std::span<const Tensor> xs) {
  for (const Tensor& x : xs)
    if (x.dtype() != dtype)
      throw DTypeError(op, "all tensors must have one dtype, got ", dtype, " and ", x.dtype(), ": ",
                       describe(x));
}

CallRecord make_record(Op op, const Tensor& x, ReduceOp reduce, int root) {
  CallRecord record{
      .op = op, .reduce = reduce, .dtype = x.dtype(), .root = root, .ndim = x.dim(), .bytes = x.nbytes()};
  std::ranges::copy(x.shape(), record.dims);
  return record;
}

std::vector<Block> blocks(std::span<const Tensor> xs) {
  std::vector<Block> blocks;
  std::ranges::transform(xs, std::back_inserter(blocks), block);
  return blocks;
}
std::vector<ConstBlock> const_blocks(std::span<const Tensor> xs) {
  std::vector<ConstBlock> blocks;
  std::ranges::transform(xs, std::back_inserter(blocks), const_block);
  return blocks;
}

}  // namespace gradus::dist::internal
