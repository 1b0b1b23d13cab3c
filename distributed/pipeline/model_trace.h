// ModelTrace: what a model's forward does, learned by running it once on the meta device, without data.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/nn/module.h"

namespace gradus::dist::internal {

// Note [Traces]
// A model's forward is plain C++, and cannot be read. It can be run: on the meta device kernels do not
// compute, but tell their tensors. So one run shows the calls of modules, in order and nested, and which op
// reads what. Memory stands for a value: a view has the memory of its base. A trace holds for the shapes of
// its inputs and for the training mode. A forward whose calls depend on values cannot be traced.

// The trace's number of a tensor's memory. -1: of an undefined tensor.
using Memory = int;

struct TracedCall {
  const nn::Module* module = nullptr;
  std::string path;                    // below the model; "": the model itself
  int parent = -1;                     // the call that made it
  int end = 0;                         // the first call after those inside
  bool hidden = false;                 // within a checkpoint, which computes it again
  std::vector<Tensor> results;         // on meta
  std::vector<Memory> memory;          // of the results
  std::shared_ptr<const void> result;  // as the module returned it
};

struct TracedEvent {
  enum Kind { kEnter, kOp, kLeave } kind;
  int call;  // kOp: the innermost one
  // Of an op: its first result; then the others and what it read.
  std::vector<Memory> memory = {};
  bool draws = false;  // it drew random numbers
};

struct ModelTrace {
  std::vector<TracedCall> calls;  // in order of entering
  std::vector<TracedEvent> events;
  std::vector<std::string> state;  // names of parameters and buffers
  std::vector<Memory> state_memory;
  std::vector<Memory> inputs;
  std::vector<Memory> results;  // what the model returned
  Memory memories = 0;          // how many
};

// Runs `forward`, which calls the model with `inputs` and returns its result's tensors. The inputs are on
// meta; the model's tensors are replaced by such meanwhile. The caller's generator stays as it is.
// Errors: those of the forward; DeviceError if it asks for a value.
ModelTrace trace_model(nn::Module& model, const std::vector<Tensor>& inputs,
                       const std::function<std::vector<Tensor>()>& forward);

// Returns a tensor like x on the meta device.
Tensor on_meta(const Tensor& x);

}  // namespace gradus::dist::internal
