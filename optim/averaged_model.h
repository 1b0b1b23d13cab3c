// Averages of a model's weights over the steps of a training (EMA, SWA). They often generalize better than
// the last weights.
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
  // average = decay average + (1 - decay) weights; none: the mean over all updates, as for SWA.
  std::optional<double> decay = {};
  // Lowers the decay at first, to min(decay, (1 + n) / (10 + n)) after n updates, so that the first
  // weights count less.
  bool warm_up = false;
  // Averages as if the average had started from 0, and divides by the sum of the weights'
  // factors, 1 - decay^n.
  bool bias_correction = false;
  bool use_buffers = false;  // averages floating-point buffers too; otherwise each update copies them
};

// Averages of the weights. For 16-bit weights they are kept in f32. The first update copies the weights. An
// update also finds tensors that were added to the model, and drops those that are gone. The average of an
// added tensor begins with its first update (`n` counts updates per tensor).
class AveragedModel {
 public:
  // `model` must outlive it.
  // Errors: ValueError for a decay outside [0, 1), warm_up or bias_correction without one, or both.
  explicit AveragedModel(const nn::Module& model, AveragedModelOptions options = {});
  AveragedModel(const nn::Module&& model, AveragedModelOptions options = {}) = delete;  // would dangle

  // Adds the model's present weights to the average.
  // Errors: StateError while a ParameterScope of the model is open: the model then holds other tensors
  // than its weights.
  void update_parameters();
  // The same with this decay, in [0, 1], in place of the options': average = decay average + (1 - decay)
  // weights. The average begins with the weights that the model had when it was first seen.
  void update_parameters(double decay);
  int64_t n_averaged() const { return updates_; }
  // Returns parameters and buffers by name, in the model's dtypes, for nn::ParameterScope. The scope
  // reports tensors that no update has seen yet. The result holds the averages themselves, or copies where
  // the dtypes differ.
  nn::StateDict weights() const;
  // Copies the averages into a model of the same kind.
  // Errors: as load_state_dict of modules.
  void copy_to(nn::Module& model) const;

  // Returns "n_averaged", "module.fc.weight", ..., and "n_averaged.fc.weight" for tensors that
  // were added later.
  State state_dict() const;
  // Errors: ValueError listing what does not fit; nothing is changed then.
  void load_state_dict(const State& state);

 private:
  struct Average {
    std::string name;
    Tensor source, value;
    bool averages;        // false: updates copy
    int64_t updates = 0;  // updates of this tensor
  };
  void follow(const char* op);
  template <class Weight> void update(Weight newest_weight);
  double newest_weight(int64_t updates) const;

  const nn::Module* model_;
  AveragedModelOptions options_;
  std::vector<Average> averages_;
  int64_t updates_ = 0;
};

// For one pass over the data: resets the statistics of all batch norms, gives all batches the same weight,
// and puts the model into training mode. The destructor restores the modes.
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

// Computes the running statistics of batch norms anew from all of `batches`, a loader or a range of tensors.
// To use it for averaged weights, call it within their ParameterScope.
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
