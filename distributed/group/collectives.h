// Collectives and point-to-point messages, with the names of torch.distributed. A tensor that a call writes must be
// row-major. These functions are not differentiable: a tensor must not be
// tracked by an open recording (gradient tape). gradus/distributed/group/functional.h has differentiable
// collectives.
//
//   dist::all_reduce(x);                                            // sum over the default group, in place
//   dist::Work work = dist::all_reduce(x, {.op = kMax, .async_op = true});
//   work.wait();
//
// Every member of the group must call the same collectives in the same order. If a rank calls another
// function, dies, exits, or does not enter the call within the timeout, all ranks throw a DistributedError
// that names the rank (gradus/distributed/base/error.h): from the call itself, or from Work::wait for an
// async call. Work keeps the tensors alive; until it is completed, the caller must not write its tensors, nor
// read those that the call writes. `src` and `dst` are ranks in the job, as in PyTorch, also if `group` is
// not the default group; a "group rank" is an index in the group.
//
// Tensors of one call are in host memory on all ranks, or on GPUs on all ranks: else all throw a MismatchError. On a GPU a
// call follows the work of the caller's current stream, which follows the call when it returns; for an async call, isend
// and irecv the current stream follows it after Work::wait, or once is_completed() has returned true. A tensor that irecv
// gets through host memory is not written unless one of these is called.
//
// Errors: in all functions, DeviceError for a tensor on the meta device; ShapeError for a written tensor
// that is not row-major ("call contiguous()"; a tensor that is only read is copied); DTypeError for tensors
// of one call with different dtypes, and for a ReduceOp that is not defined for the dtype (reduce_op.h);
// StateError for a tensor that an open recording tracks; ValueError for an undefined tensor, and if this
// rank, src or dst is no member of the group.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <vector>

#include "gradus/distributed/base/reduce_op.h"
#include "gradus/distributed/group/group.h"
#include "gradus/distributed/group/work.h"
#include "gradus/tensor/base/required.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist {

// The reduction of a call: a ReduceOp, or premul_sum.
struct ReduceOperation {
  ReduceOperation(ReduceOp reduce_op = ReduceOp::kSum) : op(reduce_op) {}

  ReduceOp op;
  std::optional<double> factor = {};  // of premul_sum
  Tensor factor_tensor = {};          // of premul_sum, instead
};
// Multiplies this rank's x by `factor` before the sum, as NCCL's PreMulSum: sum over ranks of factor * x, where
// the ranks' factors may differ. A tensor of one element may be on the GPU of x, which the host then does not
// wait for. Floating point only; products of 16-bit floats are rounded.
// Errors: of the calls: DTypeError for an integer x or factor; ShapeError for a factor of several elements.
ReduceOperation premul_sum(double factor);
ReduceOperation premul_sum(const Tensor& factor);

// The options that all collectives have in common. The default group has all ranks of the job; without a
// timeout, Group::timeout() applies.
struct CollectiveOptions {
  Group group = {};
  bool async_op = false;  // true: returns at once, Work::wait waits; false: returns when done
  std::optional<Milliseconds> timeout = {};
};
struct AllReduceOptions {
  ReduceOperation op = ReduceOp::kSum;
  Group group = {};
  bool async_op = false;
  std::optional<Milliseconds> timeout = {};
};
struct ReduceOptions {
  int dst = 0;
  ReduceOperation op = ReduceOp::kSum;
  Group group = {};
  bool async_op = false;
  std::optional<Milliseconds> timeout = {};
};
struct BroadcastOptions {
  int src = 0;
  Group group = {};
  bool async_op = false;
  std::optional<Milliseconds> timeout = {};
};
struct GatherOptions {
  int dst = 0;
  Group group = {};
  bool async_op = false;
  std::optional<Milliseconds> timeout = {};
};
using ScatterOptions = BroadcastOptions;

// Sets x to the reduction of every rank's x. All ranks get bit for bit the same result.
// Shapes: equal on all ranks.
Work all_reduce(const Tensor& x, const AllReduceOptions& options = {});
// Reduces several tensors of one dtype as one message.
// Shapes: equal on all ranks, tensor by tensor.
Work all_reduce_coalesced(const std::vector<Tensor>& xs, const AllReduceOptions& options = {});
// Sets x to the reduction on rank dst. On other ranks x keeps its value.
// Shapes: equal on all ranks.
Work reduce(const Tensor& x, const ReduceOptions& options = {});
// Sets x to rank src's x.
// Shapes: equal on all ranks.
Work broadcast(const Tensor& x, const BroadcastOptions& options = {});
// Broadcasts several tensors of one dtype as one message. bcast_list_ takes any dtypes, and checks the results.
// Shapes: equal on all ranks, tensor by tensor.
Work broadcast_coalesced(const std::vector<Tensor>& xs, const BroadcastOptions& options = {});

namespace internal {
Work gather_to(const std::vector<Tensor>& outputs, const Tensor& x, const GatherOptions& options);
}
// Sets outputs[i] to group rank i's x, on rank dst. On other ranks the list `outputs` must be empty. The
// ranks' x may differ in size but not in dtype.
// Errors: ValueError for a list on another rank, or one without an entry per rank; MismatchError for an
// output whose number of elements is not that of the rank's x. The functions below have the same errors.
template <
    std::same_as<std::vector<Tensor>> List = std::vector<Tensor>>  // gather(x, {.dst = 1}) is the next one
Work gather(const Tensor& x, const List& outputs, const GatherOptions& options = {}) {
  return internal::gather_to(outputs, x, options);
}
// Does the same without knowing the sizes. Returns one new tensor per rank on rank dst, with that rank's shape,
// and an empty vector on other ranks.
// Errors: ValueError with async_op.
std::vector<Tensor> gather(const Tensor& x, const GatherOptions& options = {});
// Sets x to rank src's inputs[own group rank]. On other ranks the list `inputs` must be empty. Entries may
// differ in size.
Work scatter(const Tensor& x, const std::vector<Tensor>& inputs, const ScatterOptions& options = {});
// Sets outputs[i] to group rank i's x, on every rank. The ranks' x may differ in size.
Work all_gather(const std::vector<Tensor>& outputs, const Tensor& x, const CollectiveOptions& options = {});
// Does the same without knowing the sizes. Returns one new tensor per rank, with that rank's shape. The
// ranks' x may differ in shape but not in dtype.
// Errors: ValueError with async_op.
std::vector<Tensor> all_gather(const Tensor& x, const CollectiveOptions& options = {});
// Sets output to all ranks' x, one after the other.
// Shapes: x equal on all ranks; output any shape with (group size) * x.numel() elements.
Work all_gather_into_tensor(const Tensor& output, const Tensor& x, const CollectiveOptions& options = {});
// Does the same for several pairs of output and x, of one dtype, as one message.
Work all_gather_into_tensor_coalesced(const std::vector<Tensor>& outputs, const std::vector<Tensor>& xs,
                                      const CollectiveOptions& options = {});
// Sets output to the reduction over ranks of inputs[own group rank].
// Shapes: the entries may differ in size; inputs[i] has the same number of elements on all ranks.
// Errors: ShapeError unless output has the number of elements of inputs[own group rank].
Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                    const AllReduceOptions& options = {});
// Divides the reduction of every rank's x into (group size) equal parts; output is part (own group rank).
// Shapes: x equal on all ranks; output any shape with x.numel() / (group size) elements.
Work reduce_scatter_tensor(const Tensor& output, const Tensor& x, const AllReduceOptions& options = {});
// Does the same for several pairs of output and x, of one dtype, as one message.
Work reduce_scatter_tensor_coalesced(const std::vector<Tensor>& outputs, const std::vector<Tensor>& xs,
                                     const AllReduceOptions& options = {});
// Sets outputs[j] to group rank j's inputs[own group rank]. Entries may differ in size.
Work all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                const CollectiveOptions& options = {});
// Divides the rows (dim 0) of x among the ranks, in the order of group ranks: input_splits[j] rows are sent
// to group rank j, and output_splits[j] rows of output are received from group rank j. Empty splits: equal
// splits.
// Errors: ValueError unless the splits add up to size(0), or without splits size(0) is divisible by the group
// size.
Work all_to_all_single(const Tensor& output, const Tensor& x, const std::vector<int64_t>& output_splits = {},
                       const std::vector<int64_t>& input_splits = {}, const CollectiveOptions& options = {});
// Completes when every member has called barrier.
Work barrier(const CollectiveOptions& options = {});

// Runs f. The calls of this file that f makes on this thread begin without waiting for each other, and coalesced
// returns when all have ended: MegEngine's group_start and group_end, and PyTorch's _coalescing_manager. An
// all_reduce and the next ones of the same group, op, dtype and device are one message. The calls must not
// use each other's results; the Works that they return are of no use. barrier, and calls that return tensors,
// still return when they are done.
//
//   dist::coalesced([&] {
//     for (const Tensor& x : xs) dist::all_reduce(x);
//   });
//
// Errors: those of the calls; ValueError for a recv from any rank.
void coalesced(const std::function<void()>& f);

// ---- Point to point. Messages between two ranks with one tag arrive in order. The receiver's tensor must
// have the message's dtype and number of elements, else both ranks throw MismatchError. send and recv block;
// isend and irecv return a Work. A send may block until the receiver has started its receive. A rank cannot send to
// itself (ValueError). kAnyRank, the default of recv, accepts any sender.
inline constexpr int kAnyRank = -1;

struct SendOptions {
  Required<int, "dst"> dst;
  uint32_t tag = 0;
  Group group = {};
  std::optional<Milliseconds> timeout = {};
};
struct RecvOptions {
  int src = kAnyRank;
  uint32_t tag = 0;
  Group group = {};
  std::optional<Milliseconds> timeout = {};
};
void send(const Tensor& x, const SendOptions& options);
int recv(const Tensor& x, const RecvOptions& options = {});  // returns the sender's rank in the job
Work isend(const Tensor& x, const SendOptions& options);
Work irecv(const Tensor& x, const RecvOptions& options = {});

// batch_isend_irecv starts all sends and receives of a list without waiting for any of them, so that no order
// of the list causes a deadlock. It returns one Work per entry. P2POp is one entry.
struct P2POp {
  enum class Kind { kSend, kRecv } kind;
  Tensor tensor;
  int peer;  // dst of a send, src of a receive
  uint32_t tag = 0;
  Group group = {};
};
std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops);

}  // namespace gradus::dist
