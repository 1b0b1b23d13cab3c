// CallRecord: what a rank is about to do in a group. Before data moves, all members exchange their records; a
// difference is the same MismatchError on every rank.
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
  // What makes a group, each under the name that its user wrote.
  kNewGroup,
  kNewSubgroups,
  kNewSubgroupsByEnumeration,
  kSplit,
  kDuplicate,
  kMakeAllreduceCb,
  kDistributedDataParallel,
  kSeparateDistributedDataParallel,
  kBackward,  // what ranks tell each other of a backward
};
std::string_view name_of(Op op);  // ends with a zero

// Which part of a differentiable collective (functional.h) a call is; kPlain: of none.
enum class Part : uint8_t { kPlain, kForward, kBackward };

// Trivially copyable: travels as bytes between ranks of one build on one architecture.
struct CallRecord {
  uint64_t sequence = 0;  // the number of this call in its group
  Op op = Op::kNone;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kF32;
  uint8_t flags = 0;  // of the op's own: whether a rank has an incoming gradient, for instance
  int32_t root = -1;  // index in the group
  int32_t ndim = 0;
  Part part = Part::kPlain;
  // 1: since this rank's last backward it has dropped a recording; 2: and opened another.
  uint8_t dropped = 0;
  uint32_t backwards = 0;  // that this rank has begun, or dropped: Note [Dropped steps]
  int64_t dims[8] = {};    // shape of this rank's tensor (the input; of a non-root's scatter the output)
  int64_t bytes = 0;       // of this rank's contribution
};

// "all_reduce(f32[4,8], sum)", for errors.
std::string describe(const CallRecord& record);

// Note [Dropped steps]
// A recording that a rank drops cancels the step on all ranks. But the collectives in that step's forward to
// which the rank did not come (it has caught an exception, say) would meet those of its next step. So a rank
// that has opened another recording must not be ahead of the others. Where calls differ, it is the odd one.

// Returns what is wrong unless the records agree in all that must agree for their op: op, reduce, dtype,
// root, and shape where all shapes must be equal. `ranks` are the members' ranks in the job. The text is the
// same on every rank and names the odd one: "rank 2 called broadcast(f32[4], root 0) as call 12 of group
// 'world', where rank 0 called all_reduce(f32[4], sum)". The rank at fault is one that differs from the
// majority (from the first, on a tie).
std::optional<Failure> find_mismatch(const std::vector<CallRecord>& records, const std::vector<int>& ranks,
                                     const std::string& group);
// Throws it as MismatchError.
void check_records(const std::vector<CallRecord>& records, const std::vector<int>& ranks,
                   const std::string& group);

}  // namespace gradus::dist::internal
