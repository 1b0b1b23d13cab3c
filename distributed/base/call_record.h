// CallRecord: what a rank is about to do in a group. All members exchange their records before data moves.
// Where the records differ, every rank gets the same MismatchError.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/reduce_op.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

enum class Op : uint8_t {
  kNone,
  kBarrier,
  kAllReduce,
  kReduce,
  kBroadcast,
  kScatter,
  kGather,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcastObject,
  kAllGatherObject,
  kGatherObject,
  kScatterObject,
  kBcastList,
  kCheckSynchronized,
  // Calls that make a group, each under the name of the function that the user called.
  kNewGroup,
  kNewSubgroups,
  kNewSubgroupsByEnumeration,
  kGrid,
  kSplit,
  kDuplicate,
  kMakeAllreduceCb,
  kDistributedDataParallel,
  kSeparateDistributedDataParallel,
  kSaveTrainingState,
  kBackward,  // what ranks tell each other of a backward
};
std::string_view name_of(Op op);  // ends with a zero

// Which part of a differentiable collective (functional.h) a call is. kPlain: the call is not part of one.
enum class Part : uint8_t { kPlain, kForward, kBackward };

// Trivially copyable: a record travels as bytes between ranks of one build on one architecture.
struct CallRecord {
  uint64_t sequence = 0;  // the number of this call in its group
  Op op = Op::kNone;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kF32;
  uint8_t flags = 0;  // the op's own, such as "this rank has an incoming gradient"
  int32_t root = -1;  // index in the group
  int32_t ndim = 0;
  Part part = Part::kPlain;
  // 1: this rank has dropped a recording since its last backward. 2: it has then opened another one.
  uint8_t dropped = 0;
  uint32_t backwards = 0;  // how many this rank has begun or dropped: Note [Dropped steps]
  int64_t dims[8] = {};    // shape of this rank's input; in scatter, off the root, of its output
  int64_t bytes = 0;       // of this rank's contribution
};

// Returns "all_reduce(f32[4,8], sum)", for errors.
std::string describe(const CallRecord& record);

// Note [Dropped steps]
// A rank that drops a recording cancels the step on all ranks. But the rank may have left the step's
// forward early, because it caught an exception, for example. The other ranks' remaining collectives of
// that forward would then meet the rank's collectives of the next step. So a rank that has dropped a
// recording and opened another one must not be ahead of the others. Where calls differ, the rank that
// dropped a recording is the odd one.

// Returns nothing if the records agree in all that must agree for their op: op, reduce, dtype, root, and
// shape where all shapes must be equal. Otherwise returns what is wrong. `ranks` are the members' ranks in
// the job. The text is the same on every rank and names the odd one: "rank 2 called broadcast(f32[4], root 0)
// as call 12 of group 'world', where rank 0 called all_reduce(f32[4], sum)". The rank at fault is the first
// one that differs from the majority (on a tie, from the first record with the most votes).
std::optional<Failure> find_mismatch(const std::vector<CallRecord>& records, const std::vector<int>& ranks,
                                     const std::string& group);

}  // namespace gradus::dist::internal
