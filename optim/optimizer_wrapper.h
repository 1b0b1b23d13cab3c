// OptimizerWrapper: one call per batch for backward, gradient accumulation, clipping and step.
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

// A function whose result keeps gradients on this rank as long as it lives: [&] { return ddp.no_sync(); }.
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
  // Undefined without a function.
  std::shared_ptr<void> operator()() const { return open_ ? open_() : nullptr; }

 private:
  std::function<std::shared_ptr<void>()> open_;
};

struct OptimizerWrapperOptions {
  int64_t accumulative_counts = 1;       // batches per step
  std::optional<double> clip_norm = {};  // norm of all gradients together, clipped before the step
  double norm_type = 2;
  std::optional<double> clip_value = {};  // bound of each element; excludes clip_norm
  GradScaler* scaler = nullptr;           // runs the backward, clips and steps; must outlive the wrapper
  NoSyncFunction no_sync = {};  // held during a backward without a step: ranks communicate once per step
};

// Averages the losses of the batches of one step: each counts 1 / accumulative_counts. When the training's
// length is known (initialize_count_status), the last step takes the remaining batches. They may be fewer,
// and then each counts more.
class OptimizerWrapper {
 public:
  // `optimizer` and `gm`, the manager of its parameters, must outlive it.
  // Errors: ValueError for accumulative_counts < 1, both kinds of clipping, or a negative bound.
  OptimizerWrapper(Optimizer& optimizer, GradManager& gm, OptimizerWrapperOptions options = {});
  // Without a manager, update_params takes one.
  explicit OptimizerWrapper(Optimizer& optimizer, OptimizerWrapperOptions options = {});

  // Opens a recording of the manager: gm.record(options).
  // Errors: StateError without a manager.
  [[nodiscard]] Recording record(RecordOptions options = {}) const;
  // Runs the backward of the loss's share. Every accumulative_counts-th call also clips, steps and clears the
  // gradients. Returns whether it stepped; see StepOutcome.
  // Errors: StateError without a manager; ShapeError unless the loss has one element; those of
  // GradManager::backward and of the step.
  StepOutcome update_params(const Tensor& loss) { return update_params(manager(), loss); }
  // The same with another `gm`: a GradManager, a Recording, or another object with backward(root, dy); and
  // with another `no_sync`.
  // Errors: as above.
  template <class Manager, class F> StepOutcome update_params(Manager& gm, const Tensor& loss, F no_sync) {
    const Tensor share = share_of(loss);
    const auto backward = [&] {
      if (options_.scaler) {
        if constexpr (requires { gm.attached_tensors(); })
          return options_.scaler->backward(gm, loss, share);
        else
          throw StateError("OptimizerWrapper", "a scaler needs the GradManager itself");
      }
      gm.backward(loss, share);
    };
    if (should_sync()) {
      backward();
    } else {
      [[maybe_unused]] const auto kept_back = no_sync();
      backward();
    }
    return after_backward();
  }
  template <class Manager> StepOutcome update_params(Manager& gm, const Tensor& loss) {
    return update_params(gm, loss, options_.no_sync);
  }

  // Returns whether the next update_params steps.
  bool should_update() const;
  // Returns whether the next backward must reduce gradients across ranks, because it is the
  // last before a step.
  bool should_sync() const { return should_update(); }
  // Returns the number of batches since the last step, whose gradients wait for the next one.
  int64_t accumulated() const { return optimizer_.accumulated_; }
  // Continues the training after `done` of `total` calls of update_params (-1: the total is unknown).
  // Accumulation starts anew.
  // Errors: ValueError for a negative `done`, or one above `total`.
  void initialize_count_status(int64_t done, int64_t total);

  Optimizer& optimizer() const { return optimizer_; }
  const OptimizerWrapperOptions& options() const { return options_; }
  const Tensor& grad_norm() const {
    return grad_norm_;
  }                                // of the last step before clipping; undefined without clip_norm
  std::vector<double> lr() const;  // of each group
  std::vector<double> momentum() const;

  // Clips, and steps with the gradients there are, however many batches they are of: for a backward of one's
  // own. `scaler` may skip the step.
  OptimizerWrapper& step();
  // Clears the gradients; accumulation starts anew. What no_sync keeps back stays, until drop_pending
  // of its AllReduceCallback.
  OptimizerWrapper& clear_grad();

  // Return and set the optimizer's state. Gradients that wait for a step are no part of it, and those that
  // no_sync keeps back differ between ranks: save and load between two steps, where accumulated() is 0.
  // The same holds for state_dict and load_state_dict of the optimizer itself.
  // Errors: StateError between the batches of a step; those of Optimizer::load_state_dict.
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  friend class OptimizerDict;
  OptimizerWrapper(Optimizer& optimizer, GradManager* gm, OptimizerWrapperOptions options);
  GradManager& manager() const;
  void check_between_steps(const std::string& name) const { optimizer_.check_between_steps(name); }
  StepOutcome clip_and_step();
  int64_t batches_of_step() const;  // number of batches of the next step
  Tensor share_of(const Tensor& loss) const;
  StepOutcome after_backward();
  void clip();

  Optimizer& optimizer_;
  GradManager* const manager_;
  const OptimizerWrapperOptions options_;
  int64_t left_ = -1;  // batches until the end; -1: unknown
  Tensor grad_norm_;
};

}  // namespace gradus::optim
