// DataParallelModel: the parameters and buffers that have a reducer together. Both wrappers stand on it.
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

// PyTorch's options, by their names. Ranks must agree on all that concern communication.
struct DistributedDataParallelOptions {
  // At most one: inputs go there, and parameters must be there. Empty: nothing is moved, and parameters may
  // be on several devices.
  std::vector<Device> device_ids = {};
  std::optional<Device> output_device = {};  // where a result goes; default: where it is
  int64_t dim = 0;                           // accepted; one device takes the whole batch
  // Buffers become those of the group's first rank. Default: yes; per sub-module no, as in mmengine.
  std::optional<bool> broadcast_buffers = {};
  bool init_sync = true;  // false: the caller makes weights equal, also those that come later
  Group process_group = {};
  double bucket_cap_mb = 25;
  bool find_unused_parameters = false;  // accepted; every backward knows what it reaches, on every rank
  bool check_reduction = false;         // accepted (deprecated in PyTorch); every backward ends complete
  bool gradient_as_bucket_view = false;
  bool static_graph = false;  // ranks reach the same parameters every time; a change is a StateError
  CommHook comm_hook = {};
  int check_divergence_every = 0;
  bool check_finite = false;
  bool overlap = true;
};

namespace internal {

// Names and tensors as they are at the moment of the call: a model may grow.
using NamedTensors = std::function<nn::StateDict()>;

// A callback that hears of recordings alone; gradients pass.
class RecordingWatcher : public GradCallback, public std::enable_shared_from_this<RecordingWatcher> {
 public:
  void recording_opened(GradManager& gm) override = 0;
  void begin(const std::vector<Tensor>&, const std::vector<bool>&) override {}
  std::optional<Tensor> ready(const Tensor&, const Tensor& grad) override { return grad; }
  std::vector<Delivery> finish() override { return {}; }
};

// The parameters and buffers of a model, or of a part of one.
class DataParallelModel {
 public:
  // Collective over the group; `maker` is the wrapper, which ranks compare. `owner` is whose parameters they
  // are, for messages.
  // Errors: ValueError for a model without parameters, or options that do not fit; MismatchError naming the
  // parameter whose name, shape or dtype differs between ranks, and the rank.
  DataParallelModel(std::string owner, NamedTensors parameters, NamedTensors buffers,
                    DistributedDataParallelOptions options, Op maker);

  // Attaches what `chosen` names, some of the parameters, and what it names later, as long as the watcher
  // lives: with the manager and one of them. Collective when the model has grown.
  std::weak_ptr<RecordingWatcher> attach(GradManager& gm, NamedTensors chosen, std::vector<Callback> more);
  // Makes what the model got since the last time the same on all ranks; attach, and recordings of managers
  // that it is attached to, do so by themselves. Collective when there is something.
  void take_in_new();
  const std::shared_ptr<AllReduceCallback>& callback() const;
  Tensor to_device(const Tensor& x) const;  // an input
  Tensor to_output(const Tensor& y) const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

// "gen", or the type of what has no name.
inline std::string owner_name(const nn::Module& module) {
  return module.name().empty() ? module.type_name() : module.name();
}

// A model with one reducer, as DistributedDataParallel has it.
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
