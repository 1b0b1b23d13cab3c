// Collectives and messages, by PyTorch's names. Tensors are dense and row-major; what a call writes is in
// place, so the tensor must not be followed by an open recording: gradus/distributed/group/functional.h has
// the differentiable forms.
//
//   dist::all_reduce(x);                                            // sum over the default group, in place
//   dist::Work work = dist::all_reduce(x, {.op = kMax, .async_op = true});
//   work.wait();
//
// Every member of the group calls the same collectives in the same order. A rank that calls something else,
// dies, leaves or does not come within the timeout is an error on all ranks that names it
// (gradus/distributed/base/error.h). Ranks in options (src, dst) are those of the job, as in PyTorch, also
// when `group` is not the default one. Errors of all: ShapeError for a tensor that is not row-major ("call
// contiguous()"); StateError when the tensor is being recorded; ValueError when this rank is no member of the
// group, or src / dst is not.
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
  bool async_op = false;  // returns at once; Work::wait waits. Otherwise the call returns when it is done
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

// x = reduction of every rank's x. The result is the same bits on all ranks.
// Shapes: equal on all ranks.
Work all_reduce(const Tensor& x, const AllReduceOptions& options = {});
// Several tensors of one dtype as one message.
// Shapes: equal on all ranks, tensor by tensor.
Work all_reduce_coalesced(const std::vector<Tensor>& xs, const AllReduceOptions& options = {});
// x = reduction, on rank dst; elsewhere x keeps its value.
Work reduce(const Tensor& x, const ReduceOptions& options = {});
// x = rank src's x.
Work broadcast(const Tensor& x, const BroadcastOptions& options = {});

// outputs[i] = group rank i's x, on rank dst; elsewhere outputs must be empty. Sizes may differ from rank to
// rank; dtypes may not.
// Errors: ValueError for a missing, surplus or short list; MismatchError for an output that does not fit.
Work gather(const Tensor& x, const std::vector<Tensor>& outputs, const GatherOptions& options = {});
// x = inputs[group rank] of rank src; elsewhere inputs must be empty. Sizes may differ.
Work scatter(const Tensor& x, const std::vector<Tensor>& inputs, const ScatterOptions& options = {});
// outputs[i] = group rank i's x, on every rank. Sizes may differ.
Work all_gather(const std::vector<Tensor>& outputs, const Tensor& x, const CollectiveOptions& options = {});
// The same without knowing the sizes: returns one new tensor per rank, with its shape (dims may differ,
// dtypes may not).
std::vector<Tensor> all_gather(const Tensor& x, const CollectiveOptions& options = {});
// output = all ranks' x, one after the other: output has size * numel elements.
// Shapes: x equal on all ranks.
Work all_gather_into_tensor(const Tensor& output, const Tensor& x, const CollectiveOptions& options = {});
// output = reduction over ranks of their inputs[my group rank]. Sizes may differ from entry to entry.
Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                    const AllReduceOptions& options = {});
// output = my part (numel / size) of the reduction of every rank's x.
Work reduce_scatter_tensor(const Tensor& output, const Tensor& x, const AllReduceOptions& options = {});
// outputs[j] = group rank j's inputs[my group rank]. Sizes may differ.
Work all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                const CollectiveOptions& options = {});
// Rows (dim 0) of x go to ranks in turn: input_splits[j] of them to rank j; output_splits[j] rows come from
// it. Empty splits: equal ones.
// Errors: ValueError unless splits add up to size(0).
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
