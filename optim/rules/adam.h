// The element-wise update of Adam and AdamW, shared by CPU and CUDA kernels. Formulas: optim/optimizers/adam.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize, plus weight decay), states m (exp_avg), v
// (exp_avg_sq), max_v (max_exp_avg_sq, for amsgrad).
template <class T, bool amsgrad> struct AdamRule {
  static constexpr raw::UsedStates kUses = {true, true, amsgrad};
  raw::Moments<T> moments;
  T shrink, rate, root, eps;
  // Copies the members that depend on the learning rate and on the step number, which CUDA kernels read on the
  // device.
  GRADUS_HD void copy_device_scalars(const AdamRule& other) {
    shrink = other.shrink, rate = other.rate, root = other.root;
  }
  GRADUS_HD void operator()(T& p, T d, T& m, T& v, T& max_v) const {
    moments.update(d, m, v);
    T second = v;
    if constexpr (amsgrad) second = max_v = max_v < v ? v : max_v;
    p = shrink * p - rate * m / (m::sqrt(second) * root + eps);
  }
};

// Makes the rule of a parameter from the options and the step number.
template <bool amsgrad> struct MakeAdam {
  double lr, beta1, beta2, eps, decay;  // decay: decoupled weight decay
  template <class T> GRADUS_HD AdamRule<T, amsgrad> rule(const raw::StepNumbers& n) const {
    return {.moments = raw::Moments<T>::of(beta1, beta2),
            .shrink = T(1 - lr * decay),
            .rate = T(lr / raw::correction(beta1, n.step)),
            .root = T(1 / m::sqrt(raw::correction(beta2, n.step))),
            .eps = T(eps)};
  }
};

template <class Apply, bool amsgrad, class Options>
void apply_adam(const char* op, const std::vector<raw::StepItem>& items, const Options& o,
                double decay_of_grad, double decay) {
  Apply::rule(op, items, decay_of_grad, o.maximize,
              MakeAdam<amsgrad>{o.lr, o.betas[0], o.betas[1], o.eps, decay});
}

// The kernels for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void adam_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  const auto apply = o.amsgrad ? &apply_adam<Apply, true, Options> : &apply_adam<Apply, false, Options>;
  apply("adam_step", items, o, o.weight_decay, 0);
}
template <class Apply, class Options>
void adamw_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  const auto apply = o.amsgrad ? &apply_adam<Apply, true, Options> : &apply_adam<Apply, false, Options>;
  apply("adamw_step", items, o, 0, o.weight_decay);
}

}  // namespace gradus::optim
