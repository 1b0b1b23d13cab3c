// OptimizerWrapper: gradient accumulation, clipping and step. update_params (in the header) multiplies the
// loss by loss_weight and calls after_backward, which steps and clears the gradients after every
// batches_of_step() batches. The number of accumulated batches is in the optimizer, shared by all of its
// wrappers.
#include "gradus/optim/optimizer_wrapper.h"

#include <algorithm>

#include "gradus/optim/clip_grad.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::optim {
namespace {
constexpr const char* kOp = "OptimizerWrapper";
}

OptimizerWrapper::OptimizerWrapper(Optimizer& optimizer, OptimizerWrapperOptions options)
    : OptimizerWrapper(optimizer, nullptr, std::move(options)) {}

OptimizerWrapper::OptimizerWrapper(Optimizer& optimizer, GradManager& gm, OptimizerWrapperOptions options)
    : OptimizerWrapper(optimizer, &gm, std::move(options)) {}

OptimizerWrapper::OptimizerWrapper(Optimizer& optimizer, GradManager* gm, OptimizerWrapperOptions options)
    : optimizer_(optimizer), manager_(gm), options_(std::move(options)) {
  check_option(options_.accumulative_counts >= 1, kOp, "accumulative_counts", ">= 1",
               double(options_.accumulative_counts));
  if (options_.clip_norm)
    check_option(*options_.clip_norm >= 0, kOp, "clip_norm", ">= 0", *options_.clip_norm);
  if (options_.clip_value)
    check_option(*options_.clip_value >= 0, kOp, "clip_value", ">= 0", *options_.clip_value);
  check_option(options_.norm_type > 0, kOp, "norm_type", "> 0", options_.norm_type);
  if (options_.clip_norm && options_.clip_value)
    throw ValueError(kOp, "expected one of clip_norm and clip_value, got both");
}

GradManager& OptimizerWrapper::manager() const {
  if (!manager_)
    throw StateError(kOp,
                     "expected a GradManager: make it as OptimizerWrapper(optimizer, gm), or in an "
                     "OptimizerDict as {\"name\", optimizer, gm}");
  return *manager_;
}

Recording OptimizerWrapper::record(RecordOptions options) const {
  return manager().record(std::move(options));
}

// Limits accumulative_counts to the batches that remain in the training; remaining_ = -1: unknown.
int64_t OptimizerWrapper::batches_of_step() const {
  return remaining_ < 0
             ? options_.accumulative_counts
             : std::min(options_.accumulative_counts, std::max<int64_t>(accumulated() + remaining_, 1));
}

bool OptimizerWrapper::should_update() const { return accumulated() + 1 >= batches_of_step(); }

// Returns the gradient of the mean loss with respect to this batch's loss: 1 / batches_of_step(), in the
// loss's shape.
Tensor OptimizerWrapper::loss_weight(const Tensor& loss) const {
  check_one_element(kOp, "the loss", loss);
  return full(loss.shape(), 1.0 / double(batches_of_step()), {loss.dtype(), loss.device()});
}

StepOutcome OptimizerWrapper::update_params(const Tensor& loss) { return update_params(manager(), loss); }

StepOutcome OptimizerWrapper::after_backward() {
  if (options_.accumulative_counts > 1)
    refuse_capture("OptimizerWrapper", "it counts the batches of a step on the host");
  StepOutcome stepped = false;
  const bool steps = should_update();
  if (steps) stepped = clip_and_step();
  ++optimizer_.accumulated_;
  if (remaining_ > 0) --remaining_;
  if (steps) clear_grad();
  return stepped;
}

StepOutcome OptimizerWrapper::clip_and_step() {
  if (options_.scaler) {
    StepOutcome stepped = options_.scaler->step(optimizer_, {.clip_norm = options_.clip_norm,
                                                             .norm_type = options_.norm_type,
                                                             .clip_value = options_.clip_value});
    grad_norm_ = options_.scaler->grad_norm();
    return stepped;
  }
  clip();
  optimizer_.step();
  return true;
}

OptimizerWrapper& OptimizerWrapper::step() {
  clip_and_step();
  return *this;
}

OptimizerWrapper& OptimizerWrapper::clear_grad() {
  optimizer_.clear_grad();
  return *this;
}

void OptimizerWrapper::clip() {
  if (options_.clip_norm)
    grad_norm_ =
        clip_grad_norm_(optimizer_.parameters(), *options_.clip_norm, {.norm_type = options_.norm_type});
  if (options_.clip_value) clip_grad_value_(optimizer_.parameters(), *options_.clip_value);
}

void OptimizerWrapper::initialize_count_status(int64_t done, int64_t total) {
  check_option(done >= 0, kOp, "done", ">= 0", double(done));
  if (total >= 0 && done > total)
    throw ValueError(kOp, "expected at most ", total, " calls done, got ", done);
  optimizer_.accumulated_ = 0;
  remaining_ = total < 0 ? -1 : total - done;
}

State OptimizerWrapper::state_dict() const { return optimizer_.state_dict(); }

void OptimizerWrapper::load_state_dict(const State& state) { optimizer_.load_state_dict(state); }

std::vector<double> OptimizerWrapper::lr() const {
  std::vector<double> all;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) all.push_back(optimizer_.lr(g));
  return all;
}

std::vector<double> OptimizerWrapper::momentum() const {
  std::vector<double> all;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) all.push_back(optimizer_.momentum(g));
  return all;
}

}  // namespace gradus::optim
