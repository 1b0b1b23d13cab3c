// AveragedModel: exponential or equal-weight averages of a model's tensors, by one multi-tensor kernel per
// number of updates; averages of 16-bit tensors are in f32 (step_dtype). BatchNormUpdate: resets running
// statistics of batch norms and makes them plain means over the batches that follow.
#include "gradus/optim/averaged_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "gradus/nn/layers/batch_norm.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::optim {

AveragedModel::AveragedModel(const nn::Module& model, AveragedModelOptions options)
    : model_(&model), options_(std::move(options)) {
  constexpr const char* kOp = "AveragedModel";
  if (options_.decay)
    check_option(*options_.decay >= 0 && *options_.decay < 1, kOp, "decay", "in [0, 1)", *options_.decay);
  if (!options_.decay && (options_.warm_up || options_.bias_correction))
    throw ValueError(kOp, "warm_up and bias_correction are for averages with a decay, got none");
  if (options_.warm_up && options_.bias_correction)
    throw ValueError(kOp, "expected one of warm_up and bias_correction, got both");
  sync_with_model(kOp);
}

// Updates the list of averages to the model's current tensors, in the model's order: keeps the averages of
// known tensors, converted to their dtype and device, adds averages of new tensors, and drops those of
// removed tensors.
void AveragedModel::sync_with_model(const char* op) {
  if (model_->is_substituted())
    throw StateError(
        op, "an open ParameterScope has put other tensors in the place of the model's weights: end it first");
  std::map<std::string, Average> previous;
  for (Average& a : averages_) previous.emplace(a.name, std::move(a));
  averages_.clear();
  const auto add = [&](const nn::StateDict& tensors, bool is_averaged) {
    for (const auto& [name, t] : tensors) {
      if (auto known = previous.extract(name); known && known.mapped().source.is_same(t)) {
        Average& a = known.mapped();
        const DType dtype = is_floating(t.dtype()) ? raw::step_dtype(t.dtype()) : t.dtype();
        a.value = raw::to(raw::to(a.value, dtype), t.device());
        averages_.push_back(std::move(a));
        continue;
      }
      const bool floating = is_floating(t.dtype());
      const Tensor value = empty(t.shape(), {floating ? raw::step_dtype(t.dtype()) : t.dtype(), t.device()});
      raw::copy_(value, t);
      averages_.push_back({name, t, value, is_averaged && floating});
    }
  };
  add(model_->named_parameters(), true);
  add(model_->named_buffers(), options_.use_buffers);
}

// Returns the weight of the model's tensor in the average after `updates` earlier updates; 1 for the first.
double AveragedModel::update_weight(int64_t updates) const {
  const double n = double(updates);
  if (updates == 0) return 1;
  if (!options_.decay) return 1 / (n + 1);
  const double decay = *options_.decay;
  if (options_.warm_up) return 1 - std::min(decay, (1 + n) / (10 + n));
  if (options_.bias_correction) return (1 - decay) / (1 - std::pow(decay, n + 1));
  return 1 - decay;
}

// average += w * (weights - average), where w = update_weight(number of updates of the tensor so far).
template <class Weight> void AveragedModel::update(Weight update_weight) {
  if (Capture* capture = recording_capture()) {
    // Each replay counts the update, on which the weight may depend.
    return capture->run_on_host("update_parameters", [this, update_weight] { update(update_weight); });
  }
  sync_with_model("update_parameters");
  std::map<int64_t, std::vector<raw::StepItem>> items;  // by the number of updates of the tensor
  for (Average& a : averages_) {
    if (a.is_averaged)
      items[a.updates].push_back({.param = a.value, .grad = raw::to(a.source, a.value.dtype()), .state = {}});
    else
      raw::copy_(a.value, a.source);
    ++a.updates;
  }
  for (const auto& [updates, same_count] : items) raw::average_step_(same_count, update_weight(updates));
  ++updates_;
}

void AveragedModel::update_parameters() {
  update([this](int64_t updates) { return update_weight(updates); });
}

void AveragedModel::update_parameters(double decay) {
  check_option(decay >= 0 && decay <= 1, "update_parameters", "decay", "in [0, 1]", decay);
  update([decay](int64_t) { return 1 - decay; });
}

nn::StateDict AveragedModel::weights() const {
  nn::StateDict all;
  for (const Average& a : averages_) all.emplace_back(a.name, raw::to(a.value, a.source.dtype()));
  return all;
}

void AveragedModel::copy_to(nn::Module& model) const { model.load_state_dict(weights()); }

State AveragedModel::state_dict() const {
  State state{.tensors = {}, .numbers = {{"n_averaged", double(updates_)}}};
  for (const Average& a : averages_) {
    state.tensors.emplace_back("module." + a.name, a.value);
    if (a.updates != updates_) state.numbers.emplace_back("n_averaged." + a.name, double(a.updates));
  }
  return state;
}

void AveragedModel::load_state_dict(const State& state) {
  sync_with_model("load_state_dict");
  StateReader in(state);
  const int64_t updates = in.count("n_averaged");
  for (Average& a : averages_) {
    const std::string own = "n_averaged." + a.name;
    const int64_t updates_of_tensor = in.contains(own) ? in.count(own) : updates;
    const Tensor value = in.tensor("module." + a.name, a.value.shape(), {a.value.dtype(), a.value.device()});
    in.on_success([&a, updates_of_tensor, value] {
      a.updates = updates_of_tensor;
      raw::copy_(a.value, value);
    });
  }
  in.finish("this AveragedModel");
  updates_ = updates;
}

BatchNormUpdate::BatchNormUpdate(nn::Module& model) {
  for (const auto& [name, module] : model.named_modules()) {
    if (auto* bn = dynamic_cast<nn::BatchNorm*>(module);
        bn && bn->running_mean.defined() && !bn->options().freeze)
      batch_norms_.push_back(bn);
  }
  for (nn::BatchNorm* bn : batch_norms_) {
    bn->reset_running_stats();
    bn->use_cumulative_average(true);
  }
  if (!batch_norms_.empty()) mode_.emplace(model, true);
}

BatchNormUpdate::~BatchNormUpdate() {
  for (nn::BatchNorm* bn : batch_norms_) bn->use_cumulative_average(false);
}

}  // namespace gradus::optim
