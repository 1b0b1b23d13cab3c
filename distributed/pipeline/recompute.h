// Recompute: a stage's forward that keeps no graph, and runs again before its backward.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/autograd/graph/recording_state.h"
#include "gradus/distributed/pipeline/schedule.h"
#include "gradus/nn/module.h"

namespace gradus::dist {

// Which forwards of a stage keep their inputs alone, and run again before their backward. They need less
// memory, and about a third more time.
enum class Recompute : uint8_t {
  kNever,
  kAlways,
  kExceptLast,  // not where the backward follows at once, so that nothing would be saved
  kAuto,        // as kExceptLast where the rank would else need more than the memory limit, else as kNever
};

namespace internal {

// Note [Recomputation]
// The first run of a forward goes under a probe, which keeps edges but nothing that rules need: it shows
// which outputs need a gradient. The second run is recorded as any forward, so a backward in two parts
// needs only one. Inputs, random numbers and autocast are those of the first run. Layers that change their
// state in a forward see is_recomputing() and do not; they have the state that the first run left, though
// other micro-batches have changed it since. A rank runs a forward again before it waits for the gradients
// of the stages after it.

// Returns whether forward number `i` of a rank's list runs again. kAuto counts as kExceptLast.
bool runs_again(Recompute mode, const std::vector<Action>& list, size_t i);
// Returns for each stage whether any of its forwards does.
std::vector<char> stages_that_run_again(const std::vector<Recompute>& of_stage, const ActionLists& lists);

// The scope of a forward that will run again.
class FirstRun {
 public:
  explicit FirstRun(const nn::Module& model);
  ~FirstRun();
  FirstRun(const FirstRun&) = delete;
  FirstRun& operator=(const FirstRun&) = delete;
  // Returns copies of the buffers that the forward has changed.
  nn::StateDict changed_buffers() const;

 private:
  Ref<autograd::RecordingState> probe_;
  autograd::RecordingsScope only_;
  nn::StateDict buffers_;
  std::vector<uint32_t> versions_;
};

// The scope of the same forward when it runs again: is_recomputing() is true, and the model has the buffers
// that the first run left.
class SecondRun {
 public:
  SecondRun(nn::Module& model, const nn::StateDict& changed_buffers);
  ~SecondRun();
  SecondRun(const SecondRun&) = delete;
  SecondRun& operator=(const SecondRun&) = delete;

 private:
  nn::ParameterScope buffers_;
  Ref<AutogradSlot> rule_;
  AutogradSlot* outer_;
};

}  // namespace internal
}  // namespace gradus::dist
