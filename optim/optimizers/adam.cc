#include "gradus/optim/optimizers/adam.h"

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<AdamOptions>;
template class OptimizerWith<AdamWOptions>;

namespace {

template <class Options> void check_adam(const Options& o, const char* kind) {
  check_option(o.lr >= 0, kind, "lr", ">= 0", o.lr);
  check_betas(kind, o.betas);
  check_option(o.eps >= 0, kind, "eps", ">= 0", o.eps);
  check_option(o.weight_decay >= 0, kind, "weight_decay", ">= 0", o.weight_decay);
}

std::vector<const char*> adam_states(bool amsgrad) {
  if (amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

}  // namespace

void AdamOptions::check() const { check_adam(*this, "Adam"); }
void AdamWOptions::check() const { check_adam(*this, "AdamW"); }

std::vector<const char*> Adam::state_names(const AdamOptions& o) const { return adam_states(o.amsgrad); }
std::vector<const char*> AdamW::state_names(const AdamWOptions& o) const { return adam_states(o.amsgrad); }

namespace {

template <class T, bool amsgrad> struct AdamRule {
  static constexpr raw::Uses kUses = {true, true, amsgrad};
  raw::Moments<T> moments;
  T shrink, rate, root, eps;
  void operator()(T& p, T d, T& m, T& v, T& top) const {
    moments.update(d, m, v);
    T second = v;
    if constexpr (amsgrad) second = top = top < v ? v : top;
    p = shrink * p - rate * m / (std::sqrt(second) * root + eps);
  }
};

template <bool amsgrad, class Options> void adam(const std::vector<raw::StepItem>& items, const Options& o) {
  const bool decoupled = std::is_same_v<Options, AdamWOptions>;
  raw::apply_rule("adam_step", items, decoupled ? 0 : o.weight_decay, o.maximize,
                  [&]<class T>(const raw::StepItem& item) {
                    return AdamRule<T, amsgrad>{
                        .moments = raw::Moments<T>::of(o.betas),
                        .shrink = decoupled ? T(1 - o.lr * o.weight_decay) : T(1),
                        .rate = T(o.lr / raw::correction(o.betas[0], item.step)),
                        .root = T(1 / std::sqrt(raw::correction(o.betas[1], item.step))),
                        .eps = T(o.eps)};
                  });
}

template <class Options>
void adam_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  o.amsgrad ? adam<true>(items, o) : adam<false>(items, o);
}

}  // namespace

constinit raw::StepSlot<AdamOptions> adam_step_kernel{"adam_step", &adam_step_cpu<AdamOptions>};
constinit raw::StepSlot<AdamWOptions> adamw_step_kernel{"adamw_step", &adam_step_cpu<AdamWOptions>};

void Adam::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(adam_step_kernel, items, options(group));
}
void AdamW::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(adamw_step_kernel, items, options(group));
}

}  // namespace gradus::optim
