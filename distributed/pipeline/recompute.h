// Recompute: activation recomputation (checkpointing) of pipeline stages. The forward of a stage saves only
// its inputs, and runs again before the backward. choose_recomputation chooses the stages by a memory limit.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/autograd/graph/recording_state.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"
#include "gradus/nn/module.h"

namespace gradus::dist::internal {

// Note [Recomputation]
// The first run of a forward uses a probe recording, which records the graph's edges without saved tensors:
// it determines which outputs need a gradient. The second run is a normal recorded forward, so a backward in
// two parts (I and W) needs only one second run. Inputs, random numbers and autocast are those of the first
// run. Layers that update state in a forward (batch norm) skip the update if is_recomputing(); the second run
// sees the buffers as the first run left them, even if other micro-batches have changed them since. A rank
// runs the second forward before it waits for the gradients of later stages.

// Returns whether action `i` of a rank's list, a forward, is recomputed. kAuto counts as kExceptLast.
bool is_recomputed(Recompute mode, const std::vector<Action>& list, size_t i);
// Returns for each stage whether any of its forwards is recomputed.
std::vector<char> recomputed_stages(Recompute mode, const ActionLists& lists);

// Memory per byte of parameters: the parameter, its gradient and two moments.
inline constexpr double kBytesPerParameterByte = 4;

// Maximal numbers of micro-batches in flight on a stage.
struct MicroBatchesInFlight {
  int64_t total = 0;        // between F and the end of B or W
  int64_t in_backward = 0;  // between the begin of B or I and the end of B or W
};
std::vector<MicroBatchesInFlight> max_in_flight(const ActionLists& lists);

struct RecomputeChoice {
  std::vector<Recompute> of_stage;         // without kAuto
  std::vector<StageTimes> stages;          // with `recomputed` set accordingly
  double makespan = 0, idle_fraction = 0;  // as in SchedulePrediction
  std::vector<double> rank_bytes;          // estimated peak memory per rank

  // Returns the maximum of rank_bytes.
  double peak_bytes() const;
};

// Greedy: simulates the lists, and while a rank needs more than `limit` bytes (0: no limit), recomputes one
// more of its stages if `mode` is kAuto, the one that frees the most bytes per second of recomputation. A
// rank may exceed the limit even with all its stages recomputed. `stages` has an entry per stage;
// `rank_bytes`, per rank, is the memory that does not depend on micro-batches.
// Errors: those of simulate().
RecomputeChoice choose_recomputation(Recompute mode, const ActionLists& lists, std::vector<StageTimes> stages,
                                     const std::vector<double>& rank_bytes, double limit);

// The scope of the first run of a recomputed forward. Created and destroyed on one thread.
class ProbeForward {
 public:
  explicit ProbeForward(const nn::Module& model);
  ~ProbeForward();
  ProbeForward(const ProbeForward&) = delete;
  ProbeForward& operator=(const ProbeForward&) = delete;
  // Returns copies of the buffers that the forward has changed.
  nn::StateDict changed_buffers() const;

 private:
  Ref<autograd::RecordingState> probe_;
  autograd::RecordingsScope recordings_scope_;
  nn::StateDict buffers_;
  std::vector<uint32_t> versions_;
};

// The scope of the second run: is_recomputing() is true, and buffers are as the first run left them, by
// ProbeForward::changed_buffers(). `model` must outlive the scope.
class RecomputedForward {
 public:
  RecomputedForward(nn::Module& model, const nn::StateDict& changed_buffers);
  ~RecomputedForward();
  RecomputedForward(const RecomputedForward&) = delete;
  RecomputedForward& operator=(const RecomputedForward&) = delete;

 private:
  nn::ParameterScope buffers_;
  Ref<AutogradSlot> node_;
  AutogradSlot* previous_node_;
};

}  // namespace gradus::dist::internal
