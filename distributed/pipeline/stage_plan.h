// StagePlan: a traced model cut into stages: what each stage runs, needs from others, and owns.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/pipeline/model_trace.h"

namespace gradus::dist::internal {

// Note [Cuts]
// A cut lies after a call of a module. Stage s begins where the s-th of these calls returns.
// Every stage runs the model's whole forward, unchanged: calls of other stages return at once, with
// tensors on meta, and after the last call of its own the stage stops. What a module of an earlier stage
// returned, and an op of this stage reads, is sent there: the value before a cut, and skip connections,
// are found alike. Ops between calls run wherever their inputs are, so what crosses is always what a
// module returned, or an input of the model.

// One result of a call that a later stage needs.
struct Crossing {
  int call = -1;  // -1: nothing but the state of the generator
  int result = 0;
  int stage = 0;  // that makes it
  bool operator==(const Crossing&) const = default;
};

struct StagePlan {
  enum class Role : uint8_t {
    kRun,   // on every stage: a cut lies inside, or it returns views alone
    kOwn,   // runs on its stage; elsewhere it returns at once
    kInner  // inside an own one
  };
  struct Call {
    Role role = Role::kRun;
    int stage = 0;
    bool cut = false;  // the next stage begins when it has returned
  };

  int stages = 1;
  std::vector<Call> calls;                   // as in the trace
  std::vector<std::vector<Crossing>> needs;  // per stage: slots; the first comes from the stage before
  std::vector<std::vector<int>> owners;      // per name of the trace's state: the stages that read it

  // Returns the calls of which `stage` sends results, with the stages that need them, later stages first.
  struct Sent {
    Crossing value;
    std::vector<std::pair<int, int>> to;  // stage and slot
  };
  std::vector<Sent> sends(int stage) const;
};

// Cuts after the given calls of the trace, in order.
// Errors: ValueError where a cut cannot be: inside a checkpoint, two at one place, or where a stage reads
// what a module of another keeps aside or what was drawn between modules.
StagePlan plan_stages(const ModelTrace& trace, const std::vector<int>& cuts);

// Returns the calls after which the modules at these paths return.
// Errors: ValueError, which lists the possible paths, for one that is not called, or called more than once.
std::vector<int> cuts_after(const ModelTrace& trace, const std::vector<std::string>& paths);

}  // namespace gradus::dist::internal
