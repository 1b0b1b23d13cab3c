// StagedModel: a model divided into the stages of pipeline parallelism, with memory for the parameters and
// buffers of this rank's stages only. A forward is traced on the meta device (shapes without data), a
// StagePlan assigns module calls and tensors to stages, and the model is then built with the other ranks'
// tensors on meta. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/stage_plan.h"

namespace gradus::dist::internal {

// The trace and the stage plan for inputs of given shapes.
struct StageSplit {
  ModelTrace trace;
  StagePlan plan;

  // Returns the source's tensor, on meta.
  const Tensor& result(const StageInputSource& source) const {
    return trace.calls[size_t(source.call)].results[size_t(source.result)];
  }
};

class StagedModel {
 public:
  struct Parts {
    std::function<std::unique_ptr<nn::Module>()> make;
    // Calls the model and returns its result's tensors.
    std::function<std::vector<Tensor>(nn::Module&, std::span<const Tensor> inputs)> forward;
    std::vector<Tensor> inputs;          // example inputs, for shapes and dtypes
    std::vector<std::string> cut_after;  // stages - 1 module paths: a stage ends when the module returns
    std::vector<int> rank_of_stage;      // one entry per stage: the rank in the pipeline's group
    int rank = 0;
    std::vector<Device> device_of_stage = {};  // empty: all on Context::device
  };
  // Builds the model, initialized with the same random numbers as in a single process, without communication.
  // Tensors of other ranks are on the meta device.
  // Errors: ValueError for cuts that are impossible or not stages - 1; StateError if two calls of make()
  // return different models.
  explicit StagedModel(Parts parts);

  nn::Module& module() { return *module_; }
  int stages() const { return int(parts_.rank_of_stage.size()); }
  int rank_of(int stage) const { return parts_.rank_of_stage[size_t(stage)]; }
  int rank() const { return parts_.rank; }
  // Returns whether this process runs all stages, on several devices.
  bool has_devices() const { return !parts_.device_of_stage.empty(); }
  // Returns the device of a stage of this rank; without has_devices(), one device for all stages.
  Device device_of(int stage) const { return devices_[size_t(stage)]; }
  // Returns copies on the stage's device, by name, of the tensors that the stage reads from other devices.
  nn::StateDict from_other_devices(const StageSplit& split, int stage) const;

  // Returns the trace and plan for these inputs and the modules' current training modes (cached). On a new
  // shape or mode, traces the forward. Errors: those of the forward and of plan_stages.
  std::shared_ptr<const StageSplit> split_for(std::span<const Tensor> inputs);

  // A parameter or buffer, and the ranks that have memory for it, in the order of their stages.
  struct StateEntry {
    std::string name;
    bool is_parameter = false;
    std::vector<int> ranks;
    Device device;  // device on this rank; meta: no memory on this rank
  };
  const std::vector<StateEntry>& state() const { return state_; }
  // Returns this rank's parameters by name, in the undivided model's order.
  nn::StateDict named_parameters() const;

 private:
  StageSplit make_split(nn::Module& model, std::span<const Tensor> inputs) const;
  void assign_owners(const StageSplit& split, const nn::Module& model);

  Parts parts_;
  std::vector<Device> devices_;  // per stage
  std::unique_ptr<nn::Module> module_;
  std::vector<nn::Module*> modules_;  // all modules, cached for split_for
  std::vector<StateEntry> state_;
  struct CachedSplit {
    std::string signature;
    std::shared_ptr<const StageSplit> split;
  };
  std::vector<CachedSplit> cached_splits_;  // cache of split_for, oldest first
};

// Makes the model on the meta device, and returns the names of its tensors in the order of their construction
// in `names`, unless null. The generator does not change.
// Errors: ValueError if parts.make() returns null.
std::unique_ptr<nn::Module> make_on_meta(const StagedModel::Parts& parts,
                                         std::vector<std::string>* names = nullptr);

// Errors: ValueError unless there are stages - 1 cuts.
void check_cuts(const std::vector<std::string>& cut_after, int stages);

// Traces the model for inputs of these shapes.
// Errors: as trace_model of the forward.
ModelTrace trace_model(nn::Module& model, const StagedModel::Parts& parts, std::span<const Tensor> inputs);

}  // namespace gradus::dist::internal
