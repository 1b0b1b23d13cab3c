// Recompute: a stage's forward that keeps no graph, and runs again before its backward.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/autograd/graph/recording_state.h"
#include "gradus/distributed/pipeline/schedule.h"

namespace gradus::dist {

// Which forwards keep their inputs alone, and run again before their backward. They need less memory, and
// about a third more time.
enum class Recompute : uint8_t {
  kNever,
  kAlways,
  kExceptLast,  // not where the backward follows at once, so that nothing would be saved
};

namespace internal {

// Note [Recomputation]
// The first run of a forward goes under a probe, which keeps edges but nothing that rules need: it shows
// which outputs need a gradient. The second run is recorded as any forward, so a backward in two parts
// needs only one. Inputs, random numbers and autocast are those of the first run. Layers that change their
// state in a forward see is_recomputing() and do not. A rank runs a forward again before it waits for the
// gradients of the stages after it.

// Returns whether forward number `i` of a rank's list runs again.
bool runs_again(Recompute mode, const std::vector<Action>& list, size_t i);

// Records for a scope which tensors depend on attached ones, and keeps nothing else.
class ProbeScope {
 public:
  ProbeScope();
  ~ProbeScope();
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;

 private:
  Ref<autograd::RecordingState> probe_;
  autograd::RecordingsScope only_;
};

// Makes is_recomputing() true for a scope.
class RecomputingScope {
 public:
  RecomputingScope();
  ~RecomputingScope();
  RecomputingScope(const RecomputingScope&) = delete;
  RecomputingScope& operator=(const RecomputingScope&) = delete;

 private:
  Ref<AutogradSlot> rule_;
  AutogradSlot* outer_;
};

}  // namespace internal
}  // namespace gradus::dist
