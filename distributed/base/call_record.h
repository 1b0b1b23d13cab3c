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

// What the records of a function's calls have, and what must agree between ranks.
struct OpInfo {
  // kSource: the root sends. kTarget: the root receives. The root must agree.
  enum class Root : uint8_t { kNone, kSource, kTarget };

  std::string_view name;    // ends with a zero
  bool has_tensor = false;  // a dtype, which must agree, and a shape
  bool same_shape = false;  // the shape must agree too
  bool reduces = false;     // a ReduceOp, which must agree
  Root root = Root::kNone;
  bool has_list = false;  // the input is one tensor per member; if the root sends, on the root alone
};

// One row per function whose calls ranks compare: its Op, its name, and the other fields of its OpInfo.
// kNewGroup to kSeparateDistributedDataParallel make a group, each under the name of the function that the
// user called.
// clang-format off
#define GRADUS_OPS(ROW)                                                                                            \
  ROW(kNone, "none")                                                                                               \
  ROW(kBarrier, "barrier")                                                                                         \
  ROW(kAllReduce, "all_reduce", .has_tensor = true, .same_shape = true, .reduces = true)                           \
  ROW(kReduce, "reduce", .has_tensor = true, .same_shape = true, .reduces = true, .root = OpInfo::Root::kTarget)   \
  ROW(kBroadcast, "broadcast", .has_tensor = true, .same_shape = true, .root = OpInfo::Root::kSource)              \
  ROW(kScatter, "scatter", .has_tensor = true, .root = OpInfo::Root::kSource, .has_list = true)                    \
  ROW(kGather, "gather", .has_tensor = true, .root = OpInfo::Root::kTarget)                                        \
  ROW(kAllGather, "all_gather", .has_tensor = true)                                                                \
  ROW(kReduceScatter, "reduce_scatter", .has_tensor = true, .same_shape = true, .reduces = true, .has_list = true) \
  ROW(kAllToAll, "all_to_all", .has_tensor = true, .has_list = true)                                               \
  ROW(kBroadcastObject, "broadcast_object", .root = OpInfo::Root::kSource)                                         \
  ROW(kAllGatherObject, "all_gather_object")                                                                       \
  ROW(kGatherObject, "gather_object", .root = OpInfo::Root::kTarget)                                               \
  ROW(kScatterObject, "scatter_object", .root = OpInfo::Root::kSource)                                             \
  ROW(kBcastList, "bcast_list_")                                                                                   \
  ROW(kCheckSynchronized, "check_synchronized")                                                                    \
  ROW(kNewGroup, "new_group")                                                                                      \
  ROW(kNewSubgroups, "new_subgroups")                                                                              \
  ROW(kNewSubgroupsByEnumeration, "new_subgroups_by_enumeration")                                                  \
  ROW(kGrid, "Grid")                                                                                               \
  ROW(kSplit, "split")                                                                                             \
  ROW(kDuplicate, "duplicate")                                                                                     \
  ROW(kMakeAllreduceCb, "make_allreduce_cb")                                                                       \
  ROW(kDistributedDataParallel, "DistributedDataParallel")                                                         \
  ROW(kSeparateDistributedDataParallel, "SeparateDistributedDataParallel")                                         \
  ROW(kSaveTrainingState, "TrainingState::save")                                                                   \
  ROW(kBackward, "backward") /* what ranks tell each other of a backward */
// clang-format on

#define GRADUS_ENUMERATOR(op, ...) op,
#define GRADUS_OP_INFO(op, name_of_op, ...) {.name = name_of_op __VA_OPT__(, ) __VA_ARGS__},
enum class Op : uint8_t { GRADUS_OPS(GRADUS_ENUMERATOR) };
inline constexpr OpInfo kOps[] = {GRADUS_OPS(GRADUS_OP_INFO)};  // in the order of Op
#undef GRADUS_ENUMERATOR
#undef GRADUS_OP_INFO

constexpr const OpInfo& info_of(Op op) { return kOps[size_t(op)]; }
constexpr std::string_view name_of(Op op) { return info_of(op).name; }  // ends with a zero

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
