// CallRecord: describes a rank's call of a collective. All members of the group exchange their records before
// data moves. If the records do not match, all members get the same MismatchError.
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

// Per op: the fields of CallRecord that the op uses, and which of them must be equal on all members.
struct OpInfo {
  // kSource: the root sends. kTarget: the root receives. The root must agree.
  enum class Root : uint8_t { kNone, kSource, kTarget };

  std::string_view name;    // data() is null-terminated
  bool has_tensor = false;  // uses dtype and device, which must be equal, and dims
  bool same_shape = false;  // dims must be equal too
  bool reduces = false;     // uses reduce, which must be equal
  Root root = Root::kNone;
  bool has_list = false;  // the input is a list of one tensor per member; with kSource, on the root alone
};

// One row per function whose calls ranks compare: its Op, its name, and the other fields of its OpInfo.
// kNewGroup to kSeparateDistributedDataParallel make a group, for the function that the user called.
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
  ROW(kBackward, "backward") /* which gradients a backward computes (data_parallel's BackwardNote) */               \
  ROW(kCapturedStep, "CapturedStep") /* the launch of a captured step */                                           \
  ROW(kSyncBatchNorm, "SyncBatchNorm") /* how many elements per channel the ranks have */
// clang-format on

#define GRADUS_ENUMERATOR(op, ...) op,
#define GRADUS_OP_INFO(op, name_of_op, ...) {.name = name_of_op __VA_OPT__(, ) __VA_ARGS__},
enum class Op : uint8_t { GRADUS_OPS(GRADUS_ENUMERATOR) };
inline constexpr OpInfo kOps[] = {GRADUS_OPS(GRADUS_OP_INFO)};  // in the order of Op
#undef GRADUS_ENUMERATOR
#undef GRADUS_OP_INFO

constexpr const OpInfo& info_of(Op op) { return kOps[size_t(op)]; }
constexpr std::string_view name_of(Op op) { return info_of(op).name; }  // data() is null-terminated

// Which part of a differentiable collective (functional.h) a call is. kPlain: the call is not part of one.
enum class Part : uint8_t { kPlain, kForward, kBackward };

// Trivially copyable: sent as bytes, so all ranks need the same build and architecture.
struct CallRecord {
  uint64_t sequence = 0;  // the number of this call among the group's collectives on this rank
  Op op = Op::kNone;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kF32;
  uint8_t flags = 0;  // specific to the op and not compared; kBackward part: 1 if this rank has a gradient
  int32_t root = -1;  // index in the group; -1: the op has none
  int32_t ndim = 0;
  Part part = Part::kPlain;
  // Note [Dropped steps]. dropped: 1 if this rank has dropped a recording since its last backward, 2 if it
  // has then opened another one. backwards counts the backwards that began and the dropped recordings.
  uint8_t dropped = 0;
  DeviceType device = DeviceType::kCPU;  // of the tensors, where the op has any
  int16_t device_index = 0;              // of a GPU. Not compared
  uint32_t backwards = 0;
  int64_t dims[8] = {};  // shape of this rank's input (of its output if it is a receiver of scatter)
  int64_t bytes = 0;  // size of this rank's input; for a new group, this rank's last group id. Not compared
};

// Returns "all_reduce(f32[4,8], sum)" or "all_reduce(f32[4,8] on cuda, sum)", for errors. The record's
// enumerators and ndim must be in range.
std::string describe(const CallRecord& record);

// Note [Dropped steps]
// A recording (gradient tape) that ends without a backward is dropped. That cancels the training step on all
// ranks. But the rank may have ended the step's forward early, for example by an exception that it caught.
// The other ranks' remaining collectives of that forward would then be matched with the rank's collectives of
// the next step. So a rank that has dropped a recording and opened another one must not be ahead of the
// others. If calls differ, the rank that dropped a recording is at fault.

// Compares the records of one call, one per member (at least one). `ranks` are the members' ranks in the job.
// Returns nullopt if the records have the same sequence number, op and part, the fields that must be equal
// for the op (OpInfo) are equal (a differentiable broadcast or scatter needs only an equal root), and no rank
// is ahead as in Note [Dropped steps]. Else returns the failure, the same on every rank; out-of-range
// enumerators or ndim of a received record are one too: "rank 2 called broadcast(f32[4], root 0) as call 12
// of group 'world', where rank 0 called all_reduce(f32[4], sum)". The rank at fault is the first one that
// differs from the most frequent record (on a tie, the first of these).
std::optional<Failure> find_mismatch(const std::vector<CallRecord>& records, const std::vector<int>& ranks,
                                     const std::string& group);

}  // namespace gradus::dist::internal
