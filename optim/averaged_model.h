// Averages of a model's weights over the steps of a training (EMA, SWA), which often generalize better than
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
  // average = decay average + (1 - decay) weights; none: the mean of all updates, for SWA.
  std::optional<double> decay = {};
  // The first weights count less, by a decay of min(decay, (1 + n) / (10 + n)) after n updates.
  bool warm_up = false;
  // As if the average had started from 0 and were divided by the sum of its weights, 1 - decay^n.
  bool bias_correction = false;
  bool use_buffers = false;  // average floating-point buffers too; otherwise they are copied at each update
};

// The averages are kept in f32 for 16-bit weights. The first update copies. They follow the model as it
// grows: an update finds new tensors, which begin with their first one (`n` counts per tensor), and drops
// those that are gone.
// Sources: Polyak and Juditsky, SIAM J. Control Optim. 30 (1992); Izmailov et al., UAI 2018.
class AveragedModel {
 public:
  // `model` must outlive it.
  // Errors: ValueError for a decay outside [0, 1), warm_up or bias_correction without one, or both.
  explicit AveragedModel(const nn::Module& model, AveragedModelOptions options = {});
  AveragedModel(const nn::Module&& model, AveragedModelOptions options = {}) = delete;  // it would be gone

  // Takes the model's present weights into the average.
  // Errors: StateError while a ParameterScope of the model is open: what it has then are not its weights.
  void update_parameters();
  int64_t n_averaged() const { return updates_; }
  // Returns parameters and buffers by name, in the model's dtypes: for nn::ParameterScope, which lists what
  // no update has seen yet. They are the averages themselves, or copies where the dtype is another one.
  nn::StateDict weights() const;
  // Copies the averages into a model of the same kind.
  // Errors: as load_state_dict of modules.
  void copy_to(nn::Module& model) const;

  // "n_averaged", "module.fc.weight"; "n_averaged.fc.weight" for tensors that came later
  State state_dict() const;
  // Errors: ValueError listing what does not fit; nothing is changed then.
  void load_state_dict(const State& state);

 private:
  struct Average {
    std::string name;
    Tensor source, value;
    bool averages;        // otherwise it copies
    int64_t updates = 0;  // that have seen it
  };
  void follow(const char* op);
  double newest_weight(int64_t updates) const;

  const nn::Module* model_;
  AveragedModelOptions options_;
  std::vector<Average> averages_;
  int64_t updates_ = 0;
};

// For the time of a pass over the data: batch norms forget their statistics and give all batches the same
// weight, all is in training mode.
class BatchNormUpdate {
 public:
  explicit BatchNormUpdate(nn::Module& model);
  ~BatchNormUpdate();
  BatchNormUpdate(const BatchNormUpdate&) = delete;
  BatchNormUpdate& operator=(const BatchNormUpdate&) = delete;
  bool has_batch_norms() const { return !batch_norms_.empty(); }

 private:
  std::vector<nn::BatchNorm*> batch_norms_;
  std::vector<std::pair<nn::Module*, bool>> training_;
};

// Computes the running statistics of batch norms anew, from all of `batches`: a loader, or a range of
// tensors. For averaged weights, within their ParameterScope.
template <class Batches>
void update_bn(Batches&& batches, nn::Layer& model) {
  const BatchNormUpdate update(model);
  if (!update.has_batch_norms()) return;
  for (const auto& batch : batches)
    if constexpr (requires { batch.input; })
      model(batch.input);
    else
      model(batch);
}

}  // namespace gradus::optim
