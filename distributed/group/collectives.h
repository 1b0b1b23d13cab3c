// Collectives and messages, with PyTorch's names. Tensors are dense and row-major. A call writes
// in place, so no open recording may follow the tensor. gradus/distributed/group/functional.h has
// the differentiable forms.
//
//   dist::all_reduce(x);                                            // sum over the default group, in place
//   dist::Work work = dist::all_reduce(x, {.op = kMax, .async_op = true});
//   work.wait();
//
// Every member of the group calls the same collectives in the same order. If a rank calls something else,
// dies, leaves or does not come within the timeout, all ranks get an error that names it
// (gradus/distributed/base/error.h). The ranks `src` and `dst` are ranks in the job, as in PyTorch, also if
// `group` is not the default one.
// Errors: in all functions, ShapeError for a tensor that is not row-major ("call contiguous()"); StateError
// if an open recording follows the tensor; ValueError if this rank, src or dst is no member of the group.
#pragma once

#include <optional>
#include <vector>

#include "gradus/distributed/base/reduce_op.h"
#include "gradus/distributed/group/group.h"
#include "gradus/distributed/group/work.h"
#include "gradus/tensor/base/required.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist {

struct CollectiveOptions {
  Group group = {};
  bool async_op = false;  // true: returns at once, Work::wait waits; false: returns when done
  std::optional<Milliseconds> timeout = {};
};
struct AllReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  Group group = {};
  bool async_op = false;
  std::optional<Milliseconds> timeout = {};
};
struct ReduceOptions {
  int dst = 0;
  ReduceOp op = ReduceOp::kSum;
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

// Sets x to the reduction of every rank's x. The result is the same bits on all ranks.
// Shapes: equal on all ranks.
Work all_reduce(const Tensor& x, const AllReduceOptions& options = {});
// Reduces several tensors of one dtype as one message.
// Shapes: equal on all ranks, tensor by tensor.
Work all_reduce_coalesced(const std::vector<Tensor>& xs, const AllReduceOptions& options = {});
// Sets x to the reduction on rank dst. Elsewhere x keeps its value.
Work reduce(const Tensor& x, const ReduceOptions& options = {});
// Sets x to rank src's x.
Work broadcast(const Tensor& x, const BroadcastOptions& options = {});

// Sets outputs[i] to group rank i's x on rank dst. Elsewhere outputs must be empty. Sizes may differ between
// ranks; dtypes may not.
// Errors: ValueError for a missing, surplus or short list; MismatchError for an output that does not fit.
Work gather(const Tensor& x, const std::vector<Tensor>& outputs, const GatherOptions& options = {});
// Sets x to rank src's inputs[my group rank]. Elsewhere inputs must be empty. Sizes may differ.
Work scatter(const Tensor& x, const std::vector<Tensor>& inputs, const ScatterOptions& options = {});
// Sets outputs[i] to group rank i's x on every rank. Sizes may differ.
Work all_gather(const std::vector<Tensor>& outputs, const Tensor& x, const CollectiveOptions& options = {});
// Does the same without knowing the sizes. Returns one new tensor per rank, with that rank's shape. Dims may
// differ; dtypes may not.
std::vector<Tensor> all_gather(const Tensor& x, const CollectiveOptions& options = {});
// Sets output to all ranks' x, one after the other. output has (group size) * x.numel() elements.
// Shapes: x equal on all ranks.
Work all_gather_into_tensor(const Tensor& output, const Tensor& x, const CollectiveOptions& options = {});
// Sets output to the reduction over ranks of their inputs[my group rank]. Sizes may differ between entries.
Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                    const AllReduceOptions& options = {});
// Sets output to my part, x.numel() / (group size) elements, of the reduction of every rank's x.
Work reduce_scatter_tensor(const Tensor& output, const Tensor& x, const AllReduceOptions& options = {});
// Sets outputs[j] to group rank j's inputs[my group rank]. Sizes may differ.
Work all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                const CollectiveOptions& options = {});
// Sends rows (dim 0) of x to the ranks in turn: input_splits[j] rows to group rank j. output_splits[j] rows
// come from group rank j. Empty splits stand for equal splits.
// Errors: ValueError unless the splits add up to size(0).
Work all_to_all_single(const Tensor& output, const Tensor& x, const std::vector<int64_t>& output_splits = {},
                       const std::vector<int64_t>& input_splits = {}, const CollectiveOptions& options = {});
// Returns when every member has called it.
Work barrier(const CollectiveOptions& options = {});

// ---- point to point. Messages of one pair and tag arrive in order; the receiver's tensor must have the
// message's dtype and number of elements (else MismatchError on both sides).
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
int recv(const Tensor& x, const RecvOptions& options = {});  // returns the sender's rank
Work isend(const Tensor& x, const SendOptions& options);
Work irecv(const Tensor& x, const RecvOptions& options = {});

// Sends and receives started together, in any order without a deadlock.
struct P2POp {
  enum class Kind { kSend, kRecv } kind;
  Tensor tensor;
  int peer;
  uint32_t tag = 0;
  Group group = {};
};
std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops);

}  // namespace gradus::dist
