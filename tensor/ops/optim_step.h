// Raw optimizer steps: each updates many parameters and their state in place, in one pass over the elements.
#pragma once

#include <array>
#include <vector>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// One parameter of a step. Each step below says which states it has, in their order.
struct StepItem {
  Tensor param, grad;
  std::array<Tensor, 3> state;         // of dtype step_dtype(param.dtype())
  int64_t step = 1;                    // the number of this step, counted from 1
  std::array<double, 2> numbers = {};  // more state, for the parameter as a whole, before this step
};

// Shows a kernel's observer the tensors of an item.
template <class F> void for_each_tensor(const StepItem& item, F f) {
  f(item.param), f(item.grad);
  for (const Tensor& x : item.state) f(x);
}

// Returns the dtype in which a step computes and keeps its state: f64 for f64, f32 for all others.
constexpr DType step_dtype(DType param) { return param == DType::kF64 ? DType::kF64 : DType::kF32; }

// In every step g = (maximize ? -grad : grad) + weight_decay * p, except where weight decay is decoupled.
// Parameters in f16 and bf16 are rounded once, at the end.

// state: {momentum buffer b}, unless momentum is 0.
//   b = step == 1 ? g : momentum * b + (1 - dampening) * g
//   p -= lr * (nesterov ? g + momentum * b : b)
struct SGDStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize;
};

// state: {m, v}, with amsgrad also the largest v.
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g^2
//   p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
// `decoupled`: g has no weight decay; p *= 1 - lr * weight_decay comes first.
struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled, amsgrad, maximize;
};

// state: {m, u}.
//   m = beta1 * m + (1 - beta1) * g
//   u = max(beta2 * u, |g| + eps)
//   p -= lr / (1 - beta1^step) * m / u
struct AdamaxStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool maximize;
};

// state: {m, v} as for Adam; numbers: {M, the product of mu_1 ... mu_(step - 1)}.
//   mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2)
//   M = M * mu_step
//   p -= lr * ((1 - mu_step) / (1 - M) * g + mu_(step + 1) / (1 - M * mu_(step + 1)) * m)
//        / (sqrt(v / (1 - beta2^step)) + eps)
struct NAdamStep {
  double lr, beta1, beta2, eps, weight_decay, momentum_decay;
  bool maximize;
};
// Returns mu_t of NAdamStep for t = step.
double nadam_mu(double beta1, double momentum_decay, int64_t step);

// state: {m, v} as for Adam.
//   r = 2 / (1 - beta2) - 1
//   rho = r - 2 * step * beta2^step / (1 - beta2^step)
//   m' = m / (1 - beta1^step)
//   rho > 5: p -= lr * m' * sqrt((rho - 4) (rho - 2) r / ((r - 4) (r - 2) rho)) * sqrt(1 - beta2^step)
//                 / (sqrt(v) + eps)
//   else:    p -= lr * m'
struct RAdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool maximize;
};

// state: {v, u}.
//   v = rho * v + (1 - rho) * g^2
//   d = sqrt(u + eps) / sqrt(v + eps) * g
//   u = rho * u + (1 - rho) * d^2
//   p -= lr * d
struct AdadeltaStep {
  double lr, rho, eps, weight_decay;
  bool maximize;
};

// state: {s}.
//   s += g^2
//   p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)
struct AdagradStep {
  double lr, lr_decay, eps, weight_decay;
  bool maximize;
};

// state: {v, b unless momentum is 0, a if centered}.
//   v = alpha * v + (1 - alpha) * g^2
//   a = alpha * a + (1 - alpha) * g
//   d = g / (sqrt(centered ? max(v - a^2, 0) : v) + eps)
//   b = momentum * b + d
//   p -= lr * (momentum ? b : d)
struct RMSpropStep {
  double lr, alpha, eps, weight_decay, momentum;
  bool centered, maximize;
};

// state: {m}; weight decay is decoupled.
//   p -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)
//   m = beta2 * m + (1 - beta2) * g
struct LionStep {
  double lr, beta1, beta2, weight_decay;
  bool maximize;
};

// state: {previous g, step size s}.
//   g * previous > 0: s = min(s * eta_plus, max_step)
//   g * previous < 0: s = max(s * eta_minus, min_step), g = 0
//   p -= sign(g) * s
struct RpropStep {
  double eta_minus, eta_plus, min_step, max_step;
  bool maximize;
};

// state: {average a}; numbers: {eta, mu}.
//   p = p * (1 - lambd * eta) - eta * g
//   a = mu == 1 ? p : a + mu * (p - a)
struct ASGDStep {
  double lambd, weight_decay;
  bool maximize;
};

// state: {m, v} as for Adam, with g = grad. |x| is the 2-norm of a whole parameter. A quotient of norms with
// a zero in it counts as 1.
//   u = m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay * p
//   p -= lr * min(|p|, max_norm) / |u| * u
// max_norm 0: |p| is not limited. Without bias_correction both factors 1 - beta^step are 1.
struct LAMBStep {
  double lr, beta1, beta2, eps, weight_decay, max_norm;
  bool bias_correction, maximize;
};

// state: {b}.
//   b = momentum * b + lr * trust * |p| / (|grad| + weight_decay * |p| + eps) * g
//   p -= b
struct LARSStep {
  double lr, momentum, weight_decay, trust, eps;
  bool maximize;
};

// A running average. The averaged tensor takes the gradient's place:
//   param += weight * (grad - param)
struct AverageStep {
  double weight;
};

// Checks that gradients and states fit their parameters.
// Errors: ShapeError, DTypeError, DeviceError.
void check_step_items(const char* op, const std::vector<StepItem>& items);

// The steps. The results are the same for any number of threads.
// Errors: as check_step_items, before anything is changed.
void sgd_step_(const std::vector<StepItem>& items, const SGDStep& options);
void adam_step_(const std::vector<StepItem>& items, const AdamStep& options);
void adamax_step_(const std::vector<StepItem>& items, const AdamaxStep& options);
void nadam_step_(const std::vector<StepItem>& items, const NAdamStep& options);
void radam_step_(const std::vector<StepItem>& items, const RAdamStep& options);
void adadelta_step_(const std::vector<StepItem>& items, const AdadeltaStep& options);
void adagrad_step_(const std::vector<StepItem>& items, const AdagradStep& options);
void rmsprop_step_(const std::vector<StepItem>& items, const RMSpropStep& options);
void lion_step_(const std::vector<StepItem>& items, const LionStep& options);
void rprop_step_(const std::vector<StepItem>& items, const RpropStep& options);
void asgd_step_(const std::vector<StepItem>& items, const ASGDStep& options);
void lamb_step_(const std::vector<StepItem>& items, const LAMBStep& options);
void lars_step_(const std::vector<StepItem>& items, const LARSStep& options);
void average_step_(const std::vector<StepItem>& items, const AverageStep& options);

// Returns the p-norm of the elements of all tensors together; p may be infinite. The result is 0-dimensional,
// f32, or f64 if the first tensor is. It is the same for any number of threads.
// Errors: DeviceError unless all are on one device.
Tensor norm_of(const std::vector<Tensor>& tensors, double p);
// Multiplies every tensor by min(1, max_norm / (norm + 1e-6)).
void clip_by_norm_(const std::vector<Tensor>& tensors, const Tensor& norm, double max_norm);
// Clamps every element to [-limit, limit].
void clip_by_value_(const std::vector<Tensor>& tensors, double limit);

// Multiplies every tensor by `factor`. Returns f32[]: 1 if an element is infinite or NaN, else 0.
// Errors: DeviceError unless all are on one device.
Tensor unscale_(const std::vector<Tensor>& tensors, double factor);

// Kernels. All tensors of one step have one device and one dtype, and are row-major. The first argument is
// one of the step's tensors; its device is where the kernel runs.
// clang-format off
template <class Options>
using StepSlot = KernelSlot<void(const Tensor&, const std::vector<StepItem>&, const Options&)>;
extern StepSlot<SGDStep> sgd_step_kernel;
extern StepSlot<AdamStep> adam_step_kernel;
extern StepSlot<AdamaxStep> adamax_step_kernel;
extern StepSlot<NAdamStep> nadam_step_kernel;
extern StepSlot<RAdamStep> radam_step_kernel;
extern StepSlot<AdadeltaStep> adadelta_step_kernel;
extern StepSlot<AdagradStep> adagrad_step_kernel;
extern StepSlot<RMSpropStep> rmsprop_step_kernel;
extern StepSlot<LionStep> lion_step_kernel;
extern StepSlot<RpropStep> rprop_step_kernel;
extern StepSlot<ASGDStep> asgd_step_kernel;
extern StepSlot<LAMBStep> lamb_step_kernel;
extern StepSlot<LARSStep> lars_step_kernel;
extern StepSlot<AverageStep> average_step_kernel;
// out (f32 or f64, dense) = the norm. The tensors may have several dtypes.
extern KernelSlot<void(const Tensor& out, const std::vector<Tensor>&, double p)> norm_of_kernel;
extern KernelSlot<void(const Tensor& norm, const std::vector<Tensor>&, double max_norm)> clip_by_norm_kernel;
extern KernelSlot<void(const Tensor&, const std::vector<Tensor>&, double limit)> clip_by_value_kernel;
// found (f32[]) = 1 if an element is not finite, else 0. The tensors may have several dtypes.
extern KernelSlot<void(const Tensor& found, const std::vector<Tensor>&, double factor)> unscale_kernel;
// clang-format on

}  // namespace gradus::raw
