#include "gradus/optim/optimizers/sgd.h"

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<SGDOptions>;

void SGDOptions::check() const {
  check_option(lr >= 0.0, "SGD", "lr", ">= 0", lr);
  check_option(momentum >= 0, "SGD", "momentum", ">= 0", momentum);
  check_option(weight_decay >= 0, "SGD", "weight_decay", ">= 0", weight_decay);
  check_option(!nesterov || momentum > 0, "SGD", "momentum", "> 0 with nesterov", momentum);
  check_option(!nesterov || dampening == 0, "SGD", "dampening", "0 with nesterov", dampening);
}

std::vector<const char*> SGD::state_names(const SGDOptions& o) const {
  if (o.momentum == 0) return {};
  return {"momentum_buffer"};
}

namespace {

template <class T> struct SGDRule {
  static constexpr raw::Uses kUses = {};
  T lr;
  void operator()(T& p, T d, T&, T&, T&) const { p -= lr * d; }
};

// b = keep b + take d;  p -= lr (direct d + ahead b)
template <class T> struct MomentumRule {
  static constexpr raw::Uses kUses = {true};
  T lr, keep, take, direct, ahead;
  void operator()(T& p, T d, T& b, T&, T&) const {
    b = keep * b + take * d;
    p -= lr * (direct * d + ahead * b);
  }
};

void sgd_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const SGDOptions& o) {
  if (o.momentum == 0)
    return raw::apply_rule("sgd_step", items, o.weight_decay, o.maximize,
                           [&]<class T>(const raw::StepItem&) { return SGDRule<T>{T(o.lr)}; });
  raw::apply_rule("sgd_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
    // A new buffer is zero. The first gradient enters it undamped.
    const bool fresh = item.step == 1;
    return MomentumRule<T>{.lr = T(o.lr),
                           .keep = fresh ? T(0) : T(o.momentum),
                           .take = fresh ? T(1) : T(1 - o.dampening),
                           .direct = o.nesterov ? T(1) : T(0),
                           .ahead = o.nesterov ? T(o.momentum) : T(1)};
  });
}

}  // namespace

constinit raw::StepSlot<SGDOptions> sgd_step_kernel{"sgd_step", &sgd_step_cpu};

void SGD::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(sgd_step_kernel, items, options(group));
}

}  // namespace gradus::optim
