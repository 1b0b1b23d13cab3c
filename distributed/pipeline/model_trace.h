// ModelTrace: the module calls and ops of a model's forward, recorded by running the forward once on the meta
// device (shapes without data).
#pragma once

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
  std::shared_ptr<const void> result;  // copy of the returned value
};

struct TracedEvent {
  enum Kind { kEnter, kOp, kLeave } kind;
  int call;  // kEnter, kLeave: the call; kOp: the innermost open call
  // kOp: storage of the first result, then of the other results and the inputs.
  std::vector<StorageId> storages = {};
  bool draws = false;  // the op drew random numbers
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
// meta; the model's tensors are replaced by meta tensors during the call. The caller's generator does not
// change.
// Errors: those of the forward; DeviceError if the forward reads a tensor's value.
ModelTrace trace_model(nn::Module& model, const std::vector<Tensor>& inputs,
                       const std::function<std::vector<Tensor>()>& forward);

// Returns a meta tensor with the shape, strides and dtype of x.
Tensor on_meta(const Tensor& x);

}  // namespace gradus::dist::internal
