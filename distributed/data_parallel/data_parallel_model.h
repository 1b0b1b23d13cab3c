// DataParallelModel: a model whose parameters and buffers are synchronized between ranks. Part of the wrappers
// DistributedDataParallel and SeparateDistributedDataParallel.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/nn/module.h"

namespace gradus::dist {

// PyTorch's options and some of this library. Options that affect communication must be equal on all ranks.
struct DistributedDataParallelOptions {
  // At most one device: inputs are moved to it, and all parameters must be on it. Empty: inputs are not
  // moved, and parameters may be on several devices.
  std::vector<Device> device_ids = {};
  std::optional<Device> output_device = {};  // results are moved to it; default: results are not moved
  int64_t dim = 0;                           // ignored: one device gets the whole batch
  // Broadcasts buffers from the group's first rank after each synchronizing backward. Default: true for
  // DistributedDataParallel, false for SeparateDistributedDataParallel, as in mmengine.
  std::optional<bool> broadcast_buffers = {};
  bool init_sync = true;  // false: the caller makes the initial weights equal, also those of later modules
  Group process_group = {};
  double bucket_cap_mb = 25;
  bool find_unused_parameters = false;  // ignored: every backward finds its unused parameters
  bool check_reduction = false;         // ignored (deprecated in PyTorch)
  bool gradient_as_bucket_view = false;
  bool static_graph = false;  // every backward reaches the same parameters; a change is a StateError
  CommHook comm_hook = {};
  int check_divergence_every = 0;
  bool check_finite = false;
  bool overlap = true;
};

namespace internal {

// The model of a wrapper, in parts that have a reducer each: one part for DistributedDataParallel; one per direct
// child, and one for the parameters of the root module itself, for SeparateDistributedDataParallel.
//
// attach, and all recordings of attached managers, search the model for new parameters, buffers and children. The
// search is collective if it finds any: ranks compare and broadcast them.
class DataParallelModel {
 public:
  // Collective over the group. `separate`: for SeparateDistributedDataParallel.
  // Errors: ValueError for a model without parameters or invalid options; MismatchError naming the parameter
  // whose name, shape or dtype differs between ranks, and the rank.
  DataParallelModel(nn::Module& module, DistributedDataParallelOptions options, bool separate);

  // Attaches the parameters of a sub-module, now and when they are new as a recording opens. The callbacks in
  // `more` get the reduced gradients.
  // Errors: of SeparateDistributedDataParallel, ValueError if `part` is neither the model nor a direct child with
  // parameters; the error lists the valid modules.
  void attach(GradManager& gm, const nn::Module& part, std::vector<Callback> more);
  void attach_all(GradManager& gm, std::vector<Callback> more);
  // Return the callbacks of the parts. If separate, they search for new parts as well.
  std::vector<std::shared_ptr<AllReduceCallback>> callbacks() const;
  const std::shared_ptr<AllReduceCallback>& callback(const nn::Module& part) const;
  Tensor to_device(const Tensor& x) const;  // an input
  Tensor to_output(const Tensor& y) const;

 private:
  class Part;
  class State;
  class Watcher;
  std::shared_ptr<State> state_;
};

}  // namespace internal
}  // namespace gradus::dist
