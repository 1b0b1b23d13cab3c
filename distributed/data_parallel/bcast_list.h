// bcast_list_: makes tensors, a model or an optimizer the same on all ranks.
//
//   dist::bcast_list_(net.parameters());
//   dist::bcast_list_(net);        // buffers as well
//   dist::bcast_list_(optimizer);  // momenta, step counts, learning rates
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/nn/module.h"
#include "gradus/optim/optimizer.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist {

struct BcastListOptions {
  Group group = {};
  int src = -1;        // rank in the job; -1: the group's first
  bool verify = true;  // compares a checksum of the result over all ranks
};

// Overwrites the tensors by rank src's, packed into few messages. Tensors keep their identity,
// layout and device.
// Shapes: equal on all ranks, tensor by tensor.
// Errors: MismatchError naming the first tensor whose shape or dtype differs, and the ranks, before anything
// is changed; StateError while an open recording follows one.
void bcast_list_(const std::vector<Tensor>& tensors, const BcastListOptions& options = {});
// The same with names for messages.
void bcast_list_(const nn::StateDict& tensors, const BcastListOptions& options = {});
// Parameters and buffers.
void bcast_list_(const nn::Module& module, const BcastListOptions& options = {});
// State and options. Ranks other than src need not have stepped yet.
void bcast_list_(optim::Optimizer& optimizer, const BcastListOptions& options = {});

// Compares tensors over all ranks, bit by bit, by checksums.
// Errors: MismatchError, the same on all ranks, naming the first tensor that differs, and which ranks have
// another value than the group's first.
void check_synchronized(const nn::StateDict& tensors, const Group& group = {});
void check_synchronized(const nn::Module& module, const Group& group = {});

}  // namespace gradus::dist
