// LARS: checks of options and the step on CPUs, in two passes: norms of parameter and gradient, then the update.
#include "gradus/optim/optimizers/lars.h"

#include "gradus/optim/rules/lars.h"
#include "gradus/tensor/cpu/optim_norm.h"

namespace gradus::optim {

template class OptimizerWith<LARSOptions>;

void LARSOptions::check() const {
  check_option(lr >= 0.0, "LARS", "lr", ">= 0", lr);
  check_option(momentum >= 0, "LARS", "momentum", ">= 0", momentum);
  check_option(weight_decay >= 0, "LARS", "weight_decay", ">= 0", weight_decay);
  check_option(trust_coefficient >= 0, "LARS", "trust_coefficient", ">= 0", trust_coefficient);
  check_option(eps >= 0, "LARS", "eps", ">= 0", eps);
}

namespace {

template <class T>
void lars(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict b, T rate,
          const LARSRule<T> rule) {
  T none = 0;
  for (int64_t i = 0; i < n; ++i) rule.step(rate, p[i], g[i], b[i], none, none);
}

void lars_step_cpu(const Tensor& first_param, const std::vector<raw::StepItem>& items, const LARSOptions& o) {
  raw::dispatch_stored(first_param.dtype(), "lars_step", [&]<class P, class T>() {
    const auto rule = MakeLARS::of(o).rule<T>({});
    const std::vector<raw::Norms> norms =
        raw::norms_of(items, [&](const raw::StepItem& item, int64_t begin, int64_t end,
                                 raw::Squares& of_param, raw::Squares& of_grad) {
          of_param.add(item.param.ptr<P>() + begin, end - begin);
          of_grad.add(item.grad.ptr<P>() + begin, end - begin);
        });
    raw::parallel_over_items(items, [&](const raw::StepItem& item, int64_t begin, int64_t end) {
      const auto [param, grad] = norms[static_cast<size_t>(&item - items.data())];
      const T rate = rule.rate(param, grad);
      T* b = item.state[0].ptr<T>() + begin;
      raw::in_tiles<P, T>(
          item.param.ptr<P>() + begin, item.grad.ptr<P>() + begin, end - begin,
          [&](T* p, const T* g, int64_t at, int64_t n) { lars<T>(n, p, g, b + at, rate, rule); });
    });
  });
}

}  // namespace

constinit raw::StepSlot<LARSOptions> lars_step_kernel{"lars_step", &lars_step_cpu};

void LARS::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(lars_step_kernel, items, options(group));
}

}  // namespace gradus::optim
