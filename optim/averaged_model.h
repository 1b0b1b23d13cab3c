// AveragedModel: averages of a model's weights over training steps, exponential (EMA) or with equal weights
// (stochastic weight averaging, SWA), as torch.optim.swa_utils. update_bn: batch norm statistics for them.
//
//   optim::AveragedModel average(net, {.decay = 0.999});
//   ... opt.step(); average.update_parameters(); ...
//   { nn::ParameterScope scope(net, average.weights());  evaluate(net); }
#pragma once

#include <optional>

#include "gradus/nn/layer.h"
#include "gradus/optim/optimizer.h"

namespace gradus::nn {
class BatchNorm;
}

namespace gradus::optim {

struct AveragedModelOptions {
  // average = decay average + (1 - decay) weights; nullopt: the mean over all updates (SWA).
  std::optional<double> decay = {};
  // Uses a decay of min(decay, (1 + n) / (10 + n)) after n updates, which reduces the influence of the first
  // weights.
  bool warm_up = false;
  // Bias correction as in Adam: an average that starts from 0, divided by 1 - decay^n after n updates.
  bool bias_correction = false;
  bool use_buffers = false;  // also averages floating-point buffers; false: each update copies the buffers
};

// Averages of 16-bit weights are stored in f32, on the device of the weights. The first update copies the
// weights. Each update also adds averages of tensors that were added to the model, and drops those of removed
// tensors; the number of updates n is counted per tensor. One thread at a time; no gradients are recorded.
class AveragedModel {
 public:
  // `model` must outlive this object.
  // Errors: ValueError for a decay outside [0, 1), warm_up or bias_correction without one, or both.
  explicit AveragedModel(const nn::Module& model, AveragedModelOptions options = {});
  AveragedModel(const nn::Module&& model, AveragedModelOptions options = {}) = delete;  // would dangle

  // Adds the model's current weights to the average.
  // Errors, also of the constructor and load_state_dict: StateError while a ParameterScope of the model is
  // open, which has replaced the model's weights.
  void update_parameters();
  // average = decay average + (1 - decay) weights, with this decay in [0, 1] instead of the options' decay.
  // The initial average of a tensor is its value at the construction of this object, or at the update that
  // added the tensor. Errors: as above; ValueError for another decay.
  void update_parameters(double decay);
  int64_t n_averaged() const { return updates_; }
  // Returns averages of parameters and buffers by name, in the model's dtypes, for nn::ParameterScope: the
  // averages themselves, or copies if the dtypes differ. Omits tensors added since the last update.
  nn::StateDict weights() const;
  // Copies the averages into a model with the same names and shapes.
  // Errors: as load_state_dict of modules.
  void copy_to(nn::Module& model) const;

  // Returns "n_averaged", "module.fc.weight", ..., and "n_averaged.fc.weight" for tensors with another number
  // of updates, because they were added later.
  State state_dict() const;
  // Errors: ValueError listing missing, unexpected and mismatching entries; the averages are then unchanged.
  void load_state_dict(const State& state);

 private:
  struct Average {
    std::string name;
    Tensor source, value;  // the model's tensor, and its average
    bool is_averaged;      // false: updates copy `source` (integers, and buffers without use_buffers)
    int64_t updates = 0;   // updates of this tensor
  };
  // Adds averages of tensors new in the model, and drops those of removed ones. `op`: caller, for errors.
  void sync_with_model(const char* op);
  // average += w (weights - average), with w = update_weight(number of earlier updates of the tensor).
  template <class Weight> void update(Weight update_weight);
  double update_weight(int64_t updates) const;
  const nn::Module* model_;
  AveragedModelOptions options_;
  std::vector<Average> averages_;
  int64_t updates_ = 0;
};

// Prepares a pass over the data that recomputes running statistics: resets the statistics of all batch norms,
// gives all batches the same weight, and sets training mode. The destructor restores modes and momentum; the
// model must exist until then.
class BatchNormUpdate {
 public:
  explicit BatchNormUpdate(nn::Module& model);
  ~BatchNormUpdate();
  BatchNormUpdate(const BatchNormUpdate&) = delete;
  BatchNormUpdate& operator=(const BatchNormUpdate&) = delete;
  bool has_batch_norms() const { return !batch_norms_.empty(); }

 private:
  std::vector<nn::BatchNorm*> batch_norms_;
  std::optional<nn::ModeScope> mode_;
};

// Recomputes the running statistics of all batch norms of the model by a forward of each batch, as
// torch.optim.swa_utils.update_bn. `batches` is a DataLoader or a range of input tensors, on the model's
// device. For averaged weights, call update_bn within their ParameterScope.
template <class Batches> void update_bn(Batches&& batches, nn::Layer& model) {
  const BatchNormUpdate update(model);
  if (!update.has_batch_norms()) return;
  for (const auto& batch : batches)
    if constexpr (requires { batch.input; })
      model(batch.input);
    else
      model(batch);
}

}  // namespace gradus::optim
