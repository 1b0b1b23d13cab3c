// StagedModel: a model cut into stages, of which this rank holds some.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/stage_plan.h"

namespace gradus::dist::internal {

// The trace and the plan for inputs of certain shapes.
struct Cut {
  ModelTrace trace;
  StagePlan plan;
};

class StagedModel {
 public:
  struct Parts {
    std::function<std::unique_ptr<nn::Module>()> make;
    // Calls the model, and returns its result's tensors.
    std::function<std::vector<Tensor>(nn::Module&, std::span<const Tensor> inputs)> forward;
    std::vector<Tensor> inputs;  // an example: shapes and dtypes count
    std::vector<std::string> cut_after;
    std::vector<int> rank_of_stage;
    int rank = 0;
    std::vector<Device> device_of_stage = {};  // empty: all on Context::device
  };
  // Builds the model with the numbers that one process gets from the generator. What other ranks own lies on
  // the meta device.
  // Errors: those of plan_stages; StateError if make() makes another model the second time.
  explicit StagedModel(Parts parts);

  nn::Module& module() { return *module_; }
  int stages() const { return int(parts_.rank_of_stage.size()); }
  int rank_of(int stage) const { return parts_.rank_of_stage[size_t(stage)]; }
  int rank() const { return parts_.rank; }
  // Whether all stages are here, on several devices.
  bool has_devices() const { return !parts_.device_of_stage.empty(); }
  // Returns where a stage of this rank computes.
  Device device_of(int stage) const { return devices_[size_t(stage)]; }
  // Returns copies, by name, of the tensors that a stage reads and that lie on another device.
  nn::StateDict from_other_devices(const Cut& cut, int stage) const;

  // Returns how the model is cut for these inputs, with the model's modes of training as they are now.
  const Cut& cut_for(std::span<const Tensor> inputs);

  // Names of parameters and buffers, in the undivided model's order, and the ranks that hold them, in
  // order of their stages.
  struct Held {
    std::string name;
    bool is_parameter = false;
    std::vector<int> ranks;
    Device device;  // where this rank has it; meta: it has not
  };
  const std::vector<Held>& state() const { return state_; }
  // Returns this rank's parameters by name, in the undivided model's order.
  nn::StateDict named_parameters() const;

 private:
  Cut make_cut(nn::Module& model, std::span<const Tensor> inputs) const;
  void place(const Cut& cut, const nn::Module& model);

  Parts parts_;
  std::vector<Device> devices_;  // per stage
  std::unique_ptr<nn::Module> module_;
  std::vector<nn::Module*> modules_;  // all of them: each action asks for its cut
  std::vector<Held> state_;
  struct Known {
    std::string signature;
    Cut cut;
  };
  std::vector<std::unique_ptr<Known>> known_;  // the latest last
};

// Makes the model on the meta device. The generator stays as it is.
// Errors: ValueError if parts.make() returns null.
std::unique_ptr<nn::Module> make_on_meta(const StagedModel::Parts& parts);

// Errors: ValueError unless there is a cut between each two of the stages.
void check_cuts(const std::vector<std::string>& cut_after, int stages);

// Traces the model as it is called with inputs of these shapes.
// Errors: as trace_model of the forward.
ModelTrace trace_model(nn::Module& model, const StagedModel::Parts& parts, std::span<const Tensor> inputs);

}  // namespace gradus::dist::internal
