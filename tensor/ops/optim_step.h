// Raw optimizer steps: each updates many parameters and their state in place, in one pass over the elements.
#pragma once

#include <array>
#include <vector>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// One parameter of a step. Which states there are, and in what order, is said by each step below.
struct StepItem {
  Tensor param, grad;
  std::array<Tensor, 3> state;
  int64_t step = 1;  // the number of this step, counted from 1
};

// g = (maximize ? -grad : grad) + weight_decay * p, in every step.

// state: {momentum buffer b}, if momentum is not 0.
// b = step == 1 ? g : momentum * b + (1 - dampening) * g;  p -= lr * (nesterov ? g + momentum * b : b)
struct SGDStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize;
};

// state: {m, v, and under amsgrad the largest v}.
// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
// p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
// `decoupled`: g has no weight decay, p *= 1 - lr * weight_decay comes first.
struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled, amsgrad, maximize;
};

// state: {v, u}.
// v = rho * v + (1 - rho) * g^2;  d = sqrt(u + eps) / sqrt(v + eps) * g;  u = rho * u + (1 - rho) * d^2
// p -= lr * d
struct AdadeltaStep {
  double lr, rho, eps, weight_decay;
  bool maximize;
};

// Throws ShapeError, DTypeError or DeviceError where a gradient or state does not fit its parameter.
void check_step_items(const char* op, const std::vector<StepItem>& items);

// Errors: as check_step_items, before anything is changed.
void sgd_step_(const std::vector<StepItem>& items, const SGDStep& options);
void adam_step_(const std::vector<StepItem>& items, const AdamStep& options);
void adadelta_step_(const std::vector<StepItem>& items, const AdadeltaStep& options);

// Returns the p-norm (p may be infinite) of all elements together, 0-dimensional, f32 (f64 if the first
// tensor is). The result is the same for any number of threads.
// Errors: DeviceError unless all are on one device.
Tensor norm_of(const std::vector<Tensor>& tensors, double p);
// Multiplies every tensor by min(1, max_norm / (norm + 1e-6)).
void clip_by_norm_(const std::vector<Tensor>& tensors, const Tensor& norm, double max_norm);
// Brings every element into [-limit, limit].
void clip_by_value_(const std::vector<Tensor>& tensors, double limit);

// Kernels. All tensors of one step have one device and one dtype, and are row-major. The first argument
// repeats one of them, to say where to run.
// clang-format off
template <class Options>
using StepSlot = KernelSlot<void(const Tensor&, const std::vector<StepItem>&, const Options&)>;
inline constinit StepSlot<SGDStep> sgd_step_kernel{"sgd_step"};
inline constinit StepSlot<AdamStep> adam_step_kernel{"adam_step"};
inline constinit StepSlot<AdadeltaStep> adadelta_step_kernel{"adadelta_step"};
// out (f32 or f64, dense) = the norm; the tensors may be of several dtypes.
inline constinit KernelSlot<void(const Tensor& out, const std::vector<Tensor>&, double p)>
    norm_of_kernel{"norm_of"};
inline constinit KernelSlot<void(const Tensor& norm, const std::vector<Tensor>&, double max_norm)>
    clip_by_norm_kernel{"clip_by_norm_"};
inline constinit KernelSlot<void(const Tensor&, const std::vector<Tensor>&, double limit)>
    clip_by_value_kernel{"clip_by_value_"};
// clang-format on

}  // namespace gradus::raw
