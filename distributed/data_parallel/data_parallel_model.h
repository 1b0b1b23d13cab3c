// DataParallelModel: the parameters and buffers that share one reducer. DistributedDataParallel has one,
// SeparateDistributedDataParallel one per sub-module.
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

// Returns the current names and tensors. Later calls may return more, since a model may get new modules.
using NamedTensors = std::function<nn::StateDict()>;

// A callback that is notified of new recordings, and passes gradients on unchanged.
class RecordingWatcher : public GradCallback, public std::enable_shared_from_this<RecordingWatcher> {
 public:
  void recording_opened(GradManager& gm) override = 0;
  void begin(const std::vector<Tensor>&, const std::vector<bool>&) override {}
  std::optional<Tensor> ready(const Tensor&, const Tensor& grad) override { return grad; }
  std::vector<Delivery> finish() override { return {}; }
};

// The parameters and buffers of a model or sub-module.
class DataParallelModel {
 public:
  // Collective over the group. `maker` is the wrapper; ranks compare it. `owner` is the name of the module
  // that has the parameters, for errors.
  // Errors: ValueError for a model without parameters or invalid options; MismatchError naming the parameter
  // whose name, shape or dtype differs between ranks, and the rank.
  DataParallelModel(std::string owner, NamedTensors parameters, NamedTensors buffers,
                    DistributedDataParallelOptions options, Op maker);

  // Attaches the parameters that `chosen` returns, and, whenever a recording opens, those that it returns
  // newly. The returned watcher lives as long as the manager and one attached parameter. Collective if the
  // model has new tensors.
  std::weak_ptr<RecordingWatcher> attach(GradManager& gm, NamedTensors chosen, std::vector<Callback> more);
  // Compares and broadcasts the tensors that are new in the model since the last call. attach(), and each
  // recording of an attached manager, call sync_new_tensors. Collective if there are new tensors.
  void sync_new_tensors();
  const std::shared_ptr<AllReduceCallback>& callback() const;
  Tensor to_device(const Tensor& x) const;  // an input
  Tensor to_output(const Tensor& y) const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

// Returns the module's name, or its type if it has no name.
inline std::string owner_name(const nn::Module& module) {
  return module.name().empty() ? module.type_name() : module.name();
}

// The reducers of DistributedDataParallel: one for the whole model.
class WholeModel {
 public:
  WholeModel(nn::Module& module, DistributedDataParallelOptions options);

  void attach(GradManager& gm, const nn::Module& part, std::vector<Callback> more);
  void attach_all(GradManager& gm, std::vector<Callback> more) { attach(gm, module_, std::move(more)); }
  std::vector<std::shared_ptr<AllReduceCallback>> callbacks() const { return {model_.callback()}; }
  const DataParallelModel& first() const { return model_; }

 private:
  nn::Module& module_;
  DataParallelModel model_;
};

}  // namespace internal
}  // namespace gradus::dist
