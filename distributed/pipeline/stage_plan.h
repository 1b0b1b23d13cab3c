// ModelTrace: the module calls and ops of a model's forward, recorded by running the forward once on the meta
// device (shapes without data). StagePlan: divides a traced model into stages, and determines for each stage
// its module calls, its inputs from other stages, and its parameters. run_stage runs one stage.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/nn/module.h"

namespace gradus::dist::internal {

// Note [Traces]
// A forward is C++ code, which cannot be inspected but can be run. On the meta device ops compute shapes
// only, and report their operands to an Observer. One run records the nested module calls and the operands of
// each op. Tensors are identified by their storage, so a view is identified with its base. A trace is valid
// for the shapes of its inputs and the training mode. A forward whose calls depend on tensors' values cannot
// be traced.

// Number of a storage in the trace; -1 for an undefined tensor.
using StorageId = int;

struct TracedCall {
  const nn::Module* module = nullptr;
  std::string path;                    // path in the model; "": the model itself
  int parent = -1;                     // index of the enclosing call
  int end = 0;                         // index of the next call that is not nested in this one
  bool in_checkpoint = false;          // inside a checkpoint() function
  std::vector<Tensor> results;         // tensors of the returned value, on meta
  std::vector<StorageId> storages;     // storage of each result
  std::shared_ptr<const void> result;  // copy of the returned value, of the type that the module returns
};

struct TracedEvent {
  enum Kind { kEnter, kOp, kLeave } kind;
  int call;  // kEnter, kLeave: the call; kOp: the innermost open call
  // kOp: storage of the first result, then of the other results and the inputs.
  std::vector<StorageId> storages = {};
  bool draws_random = false;  // the op drew random numbers
};

struct ModelTrace {
  std::vector<TracedCall> calls;  // in order of entering
  std::vector<TracedEvent> events;
  std::vector<std::string> state;  // names of parameters and buffers
  std::vector<StorageId> state_storages;
  std::vector<StorageId> inputs;
  std::vector<StorageId> results;  // storage of the model's results
  int num_storages = 0;
};

// Runs `forward`, which calls the model with `inputs` and returns its result's tensors. The inputs must be on
// meta; meta tensors replace the model's tensors during the call. The caller's generator does not change. The
// model must outlive the trace.
// Errors: those of the forward; DeviceError if the forward reads a tensor's value.
ModelTrace trace_model(nn::Module& model, const std::vector<Tensor>& inputs,
                       const std::function<std::vector<Tensor>()>& forward);

// Returns a meta tensor with the shape, strides and dtype of x.
Tensor on_meta(const Tensor& x);

// Note [Cuts]
// A cut is placed after a module call. Stage s begins when the s-th of these calls returns. Every stage runs
// the model's unchanged forward: calls of other stages return immediately, with tensors on meta. If an op of
// this stage reads the result of a module of an earlier stage, the result is sent to this stage. This covers
// both the value at the cut and skip connections. Ops between module calls run on every stage that has their
// inputs, so only results of modules and inputs of the model are sent.

// A result of a call that a later stage reads.
struct StageInputSource {
  int call = -1;   // -1: no tensor, only the state of the generator
  int result = 0;  // index in the call's results
  int stage = 0;   // the stage that computes the result
  bool operator==(const StageInputSource&) const = default;
};

struct StagePlan {
  enum class Role : uint8_t {
    kEveryStage,  // runs on every stage: it contains a cut, or it returns only views
    kOneStage,    // runs on its stage; returns immediately on other stages
    kNested       // nested in a kOneStage call
  };
  struct Call {
    Role role = Role::kEveryStage;
    int stage = 0;
    bool ends_stage = false;  // the next stage begins when this call returns
  };

  int stages = 1;
  std::vector<Call> calls;  // by index of ModelTrace::calls
  // Per stage: inputs (slots). Slot 0 is from the previous stage.
  std::vector<std::vector<StageInputSource>> inputs;
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
  std::vector<Tensor> received;  // by slot of StagePlan::inputs; undefined for a source without a call
  std::array<uint64_t, 2> generator = {};  // state of the random generator at the stage's start
};

struct StageOutput {
  std::vector<Tensor> sent;                // in the order of StagePlan::sends
  std::array<uint64_t, 2> generator = {};  // state of the random generator at the stage's end
};

// Runs `forward`, which calls the model, as one stage, on the calling thread. Except on the last stage, the
// model returns tensors on the meta device. Sets the thread's generator to input.generator at the stage's
// start; after the call it has the state output.generator.
// Errors: those of the forward; ValueError if the calls differ from the traced ones.
StageOutput run_stage(const ModelTrace& trace, const StagePlan& plan, int stage, const StageInput& input,
                      const std::function<void()>& forward);

}  // namespace gradus::dist::internal
