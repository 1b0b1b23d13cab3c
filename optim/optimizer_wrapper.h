// OptimizerWrapper: one call per batch for backward, gradient accumulation, clipping and step.
//
//   optim::OptimizerWrapper optimizer(opt, {.accumulative_counts = 4, .clip_norm = 1.0});
//   for (const data::Batch& b : loader) {
//     auto recording = gm.record();
//     optimizer.update_params(gm, loss(net(b.input), b.target), [&] { return ddp.no_sync(); });
//   }
#pragma once

#include <optional>
#include <utility>

#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct OptimizerWrapperOptions {
  int64_t accumulative_counts = 1;       // batches per step
  std::optional<double> clip_norm = {};  // norm of all gradients together, clipped before the step
  double norm_type = 2;
  std::optional<double> clip_value = {};  // bound of each element; excludes clip_norm
  GradScaler* scaler = nullptr;           // runs the backward, clips and steps; must outlive the wrapper
};

// Averages the losses of the batches of one step: each counts 1 / accumulative_counts. When the training's
// length is known (initialize_count_status), the last step takes the remaining batches. They may be fewer,
// and then each counts more.
class OptimizerWrapper {
 public:
  // `optimizer` must outlive it.
  // Errors: ValueError for accumulative_counts < 1, both kinds of clipping, or a negative bound.
  explicit OptimizerWrapper(Optimizer& optimizer, OptimizerWrapperOptions options = {});

  // Runs gm.backward(loss) for the loss's share. Every accumulative_counts-th call also clips, steps and
  // clears the gradients. `gm` is a GradManager, a Recording, or another object with backward(root, dy). The
  // result of `no_sync()` keeps gradients on this rank as long as it lives. It is held during a backward
  // without a step, so that ranks communicate once per step. Returns whether it stepped.
  // Errors: ShapeError unless the loss has one element.
  template <class Manager, class F> bool update_params(Manager& gm, const Tensor& loss, F no_sync) {
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
  template <class Manager> bool update_params(Manager& gm, const Tensor& loss) {
    return update_params(gm, loss, [] { return 0; });
  }

  // Returns whether the next update_params steps.
  bool should_update() const;
  // Returns whether the next backward must reduce gradients across ranks, because it is the
  // last before a step.
  bool should_sync() const { return should_update(); }
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
  Optimizer& clear_grad() { return optimizer_.clear_grad(); }

  // Returns the optimizer's state. It does not include gradients accumulated since the last step: save
  // right after a step.
  State state_dict() const { return optimizer_.state_dict(); }
  void load_state_dict(const State& state) { optimizer_.load_state_dict(state); }

 private:
  int64_t batches_of_step() const;  // number of batches of the next step
  Tensor share_of(const Tensor& loss) const;
  bool after_backward();
  void clip();

  Optimizer& optimizer_;
  const OptimizerWrapperOptions options_;
  int64_t accumulated_ = 0;  // batches since the last step
  int64_t left_ = -1;        // batches until the end, including those accumulated; -1: unknown
  Tensor grad_norm_;
};

}  // namespace gradus::optim
