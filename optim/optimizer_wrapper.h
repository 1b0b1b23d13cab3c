// OptimizerWrapper: one call per batch for backward, gradient accumulation, clipping and step. Names and behavior
// are those of mmengine's OptimWrapper. Not thread-safe.
//
//   optim::OptimizerWrapper optimizer(
//       opt, gm, {.accumulative_counts = 4, .clip_norm = 1.0, .no_sync = [&] { return ddp.no_sync(); }});
//   for (const data::Batch& b : loader) {
//     auto recording = optimizer.record();
//     optimizer.update_params(loss(net(b.input), b.target));
//   }
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "gradus/autograd/grad_manager.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optimizer.h"

namespace gradus::optim {

// A function that returns a scope object during whose lifetime gradients are not reduced across ranks:
// [&] { return ddp.no_sync(); }.
class NoSyncFunction {
 public:
  NoSyncFunction() = default;
  template <std::invocable F>
    requires(!std::same_as<std::remove_cvref_t<F>, NoSyncFunction> &&
             !std::is_void_v<std::invoke_result_t<F>>)
  NoSyncFunction(F f)
      : open_([f = std::move(f)]() mutable -> std::shared_ptr<void> {
          return std::shared_ptr<void>(new auto(f()));
        }) {}
  // Returns the scope object; null if there is no function.
  std::shared_ptr<void> operator()() const { return open_ ? open_() : nullptr; }

 private:
  std::function<std::shared_ptr<void>()> open_;
};

struct OptimizerWrapperOptions {
  int64_t accumulative_counts = 1;       // batches per step
  std::optional<double> clip_norm = {};  // max_norm of clip_grad_norm_ before the step
  double norm_type = 2;
  std::optional<double> clip_value = {};  // clip_value of clip_grad_value_; excludes clip_norm
  GradScaler* scaler = nullptr;           // scales the loss, clips and steps; must outlive the wrapper
  NoSyncFunction no_sync = {};  // used for backwards without a step, so that ranks communicate once per step
};

// Each step uses the mean of the losses of accumulative_counts batches: each loss has weight 1 /
// accumulative_counts. If the length of the training is known (initialize_count_status), the last step uses the
// remaining batches, with weight 1 / (number of remaining batches).
class OptimizerWrapper {
 public:
  // `optimizer` and `gm`, the manager of its parameters, must outlive the wrapper.
  // Errors: ValueError for accumulative_counts < 1, both kinds of clipping, or a negative bound.
  OptimizerWrapper(Optimizer& optimizer, GradManager& gm, OptimizerWrapperOptions options = {});
  // Without a manager; a manager is then passed to update_params.
  explicit OptimizerWrapper(Optimizer& optimizer, OptimizerWrapperOptions options = {});

  // Opens a recording of the manager: gm.record(options).
  // Errors: StateError without a manager.
  [[nodiscard]] Recording record(RecordOptions options = {}) const;
  // Runs the backward of the weighted loss. Every accumulative_counts-th call also clips, steps and clears the
  // gradients. Returns whether the optimizer stepped: false if the step is not due, or the scaler skipped it
  // because gradients were not finite. Reading the StepOutcome as a bool may wait for the GPU.
  // Errors: StateError without a manager; ShapeError unless the loss has one element; those of
  // GradManager::backward and of the step.
  StepOutcome update_params(const Tensor& loss);
  // The same with another `gm`, a GradManager, a Recording or another object with backward(root, dy), and with
  // another `no_sync`.
  // Errors: as above.
  template <class Manager, class F> StepOutcome update_params(Manager& gm, const Tensor& loss, F no_sync) {
    const Tensor weight = loss_weight(loss);
    const auto backward = [&] {
      if (options_.scaler) {
        if constexpr (requires { gm.attached_tensors(); })
          return options_.scaler->backward(gm, loss, weight);
        else
          throw StateError("OptimizerWrapper", "a scaler needs the GradManager itself");
      }
      gm.backward(loss, weight);
    };
    if (should_sync()) {
      backward();
    } else {
      [[maybe_unused]] const auto no_sync_scope = no_sync();
      backward();
    }
    return after_backward();
  }
  template <class Manager> StepOutcome update_params(Manager& gm, const Tensor& loss) {
    return update_params(gm, loss, options_.no_sync);
  }

  // Returns whether the next update_params makes a step.
  bool should_update() const;
  // Returns whether the next backward must reduce gradients across ranks: whether it is the last before a step.
  bool should_sync() const { return should_update(); }
  // Returns the number of batches whose gradients have been accumulated since the optimizer's last step, by
  // all of its wrappers.
  int64_t accumulated() const { return optimizer_.accumulated_; }
  // Sets the position in the training to `done` of `total` calls of update_params (-1: total unknown), and
  // resets the accumulation.
  // Errors: ValueError for a negative `done`, or one above `total`.
  void initialize_count_status(int64_t done, int64_t total);

  Optimizer& optimizer() const { return optimizer_; }
  const OptimizerWrapperOptions& options() const { return options_; }
  // Returns the norm of the gradients of the last step before clipping; undefined without clip_norm.
  const Tensor& grad_norm() const { return grad_norm_; }
  // Return the learning rate and the momentum of each parameter group.
  std::vector<double> lr() const;
  std::vector<double> momentum() const;

  // Clips the current gradients and steps, independent of accumulative_counts. For callers that run the backward
  // themselves. `scaler` may skip the step.
  OptimizerWrapper& step();
  // Clears the gradients and resets the accumulation. Gradients that were accumulated under no_sync and not yet
  // reduced are not cleared: call AllReduceCallback::drop_pending.
  OptimizerWrapper& clear_grad();

  // Return and set the optimizer's state, which does not contain accumulated gradients: save and load when
  // accumulated() is 0. The same applies to state_dict and load_state_dict of the optimizer itself.
  // Errors: StateError unless accumulated() is 0; those of Optimizer::load_state_dict.
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  friend class OptimizerDict;
  OptimizerWrapper(Optimizer& optimizer, GradManager* gm, OptimizerWrapperOptions options);
  GradManager& manager() const;
  void check_between_steps(const std::string& name) const { optimizer_.check_between_steps(name); }
  StepOutcome clip_and_step();
  int64_t batches_of_step() const;  // number of batches of the next step
  Tensor loss_weight(const Tensor& loss) const;
  StepOutcome after_backward();
  void clip();

  Optimizer& optimizer_;
  GradManager* const manager_;
  const OptimizerWrapperOptions options_;
  int64_t remaining_ = -1;  // batches until the end of the training; -1: unknown
  Tensor grad_norm_;
};

}  // namespace gradus::optim
