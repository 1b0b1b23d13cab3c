// StagePlan: divides a traced model into stages, and determines for each stage its module calls, its inputs
// from other stages, and its parameters. run_stage runs one stage.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/model_trace.h"

namespace gradus::dist::internal {

// Note [Cuts]
// A cut is placed after a module call. Stage s begins when the s-th of these calls returns. Every stage runs
// the model's unchanged forward: calls of other stages return immediately, with tensors on meta. If an op of this
// stage reads the result of a module of an earlier stage, the result is sent to this stage. This covers both the value
// at the cut and skip connections. Ops between module calls run on every stage that has their inputs, so only results
// of modules and inputs of the model are sent.

// A result of a call that a later stage reads.
struct StageInputSource {
  int call = -1;   // -1: no tensor, only the state of the generator
  int result = 0;  // index in the call's results
  int stage = 0;   // the stage that computes the result
  bool operator==(const StageInputSource&) const = default;
};

struct StagePlan {
  enum class Role : uint8_t {
    kRun,   // runs on every stage: it contains a cut, or it returns only views
    kOwn,   // runs on its stage; returns immediately on other stages
    kInner  // nested in a kOwn call
  };
  struct Call {
    Role role = Role::kRun;
    int stage = 0;
    bool cut = false;  // the next stage begins when this call returns
  };

  int stages = 1;
  std::vector<Call> calls;  // by index of ModelTrace::calls
  // Per stage: inputs (slots). Slot 0 is from the previous stage.
  std::vector<std::vector<StageInputSource>> needs;
  std::vector<std::vector<int>> owners;  // by index of ModelTrace::state: the stages that read the tensor

  // Returns the results that `stage` sends, with their destinations, later stages first.
  struct Sent {
    StageInputSource value;
    std::vector<std::pair<int, int>> to;  // {stage, slot}
  };
  std::vector<Sent> sends(int stage) const;
  // Returns whether the stage reads the tensor ModelTrace::state[state].
  bool reads(int stage, size_t state) const {
    return std::ranges::find(owners[state], stage) != owners[state].end();
  }
};

// Cuts after the given calls of the trace, in ascending order of their ends.
// Errors: ValueError for an impossible cut: inside a checkpoint() function, with no call since the previous
// cut, or if a stage reads a tensor that a module of another stage computed but did not return, or random
// numbers that an earlier stage drew between modules.
StagePlan plan_stages(const ModelTrace& trace, const std::vector<int>& cuts);

// Returns the calls of the modules at these paths, in ascending order of their ends.
// Errors: ValueError, which lists the possible paths, for a module that is not called exactly once.
std::vector<int> cuts_after(const ModelTrace& trace, const std::vector<std::string>& paths);

struct StageInput {
  std::vector<Tensor> received;            // by slot of StagePlan::needs
  std::array<uint64_t, 2> generator = {};  // state of the random generator at the stage's start
};

struct StageOutput {
  std::vector<Tensor> sent;                // in the order of StagePlan::sends
  std::array<uint64_t, 2> generator = {};  // state of the random generator at the stage's end
};

// Runs `forward`, which calls the model, as one stage. Except on the last stage, the model returns tensors on the meta
// device. Sets the calling thread's generator to input.generator at the stage's start.
// Errors: those of the forward; ValueError if the calls differ from the traced ones.
StageOutput run_stage(const ModelTrace& trace, const StagePlan& plan, int stage, const StageInput& input,
                      const std::function<void()>& forward);

}  // namespace gradus::dist::internal
