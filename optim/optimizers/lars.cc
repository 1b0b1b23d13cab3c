// LARS and LAMB: checks of options and the step kernels on CPUs, with the rules of optim/rules/lars.h in two
// parallel passes over all parameters. LARS computes the norms of parameter and gradient, then updates. LAMB
// updates the moments and computes the norms of parameter and direction, then computes the direction again
// and applies it. T is the type to compute in; for_each_tile converts elements of type P to T in blocks. All
// tensors of a call have the dtype of `first_param`.
#include "gradus/optim/optimizers/lars.h"

#include "gradus/optim/rules/lars.h"
#include "gradus/tensor/cpu/optim_norm.h"

namespace gradus::optim {

template class OptimizerWith<LARSOptions>;
template class KernelOptimizer<LARSOptions>;
template class OptimizerWith<LAMBOptions>;
template class KernelOptimizer<LAMBOptions>;

void LARSOptions::check() const {
  check_not_negative(kName, {{"lr", lr},
                             {"momentum", momentum},
                             {"weight_decay", weight_decay},
                             {"trust_coefficient", trust_coefficient},
                             {"eps", eps}});
}

void LAMBOptions::check() const {
  check_not_negative(kName,
                     {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}, {"max_norm", max_norm}});
  check_betas(kName, betas);
}

namespace {

// Updates n elements. __restrict lets the compiler vectorize, here and below.
template <class T>
void lars(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict b, T rate,
          const LARSRule<T> rule) {
  T none = 0;
  for (int64_t i = 0; i < n; ++i) rule.step(rate, p[i], g[i], b[i], none, none);
}

void lars_step_cpu(const Tensor& first_param, const std::vector<raw::StepItem>& items, const LARSOptions& o) {
  raw::dispatch_storage_type(first_param.dtype(), "lars_step", [&]<class P, class T>() {
    const auto rule = LARSRuleFactory::of(o).rule<T>({});
    const std::vector<raw::Norms> norms =
        raw::norms_of(items, [&](const raw::StepItem& item, int64_t begin, int64_t end,
                                 raw::SumOfSquares& of_param, raw::SumOfSquares& of_grad) {
          of_param.add(item.param.ptr<P>() + begin, end - begin);
          of_grad.add(item.grad.ptr<P>() + begin, end - begin);
        });
    raw::parallel_over_items(items, [&](const raw::StepItem& item, int64_t begin, int64_t end) {
      const auto [param, grad] = norms[static_cast<size_t>(&item - items.data())];
      const T rate = rule.rate(param, grad);
      T* b = item.state[0].ptr<T>() + begin;
      raw::for_each_tile<P, T>(
          item.param.ptr<P>() + begin, item.grad.ptr<P>() + begin, end - begin,
          [&](T* p, const T* g, int64_t at, int64_t n) { lars<T>(n, p, g, b + at, rate, rule); });
    });
  });
}

template <class T>
void lamb_moments(int64_t n, const T* __restrict g, T* __restrict m, T* __restrict v,
                  const LAMBRule<T> rule) {
  for (int64_t i = 0; i < n; ++i) rule.update(g[i], m[i], v[i]);
}

// u = direction of the step before the trust ratio.
template <class T>
void lamb_directions(int64_t n, T* __restrict u, const T* __restrict p, const T* __restrict m,
                     const T* __restrict v, const LAMBRule<T> rule) {
  for (int64_t i = 0; i < n; ++i) u[i] = rule.direction(p[i], m[i], v[i]);
}

constexpr int64_t kTile = 512;  // elements of the direction that are computed at a time

// Computes the directions of n elements tile by tile, and calls f(directions, first, count) for each tile.
template <class T, class F>
void lamb_tiles(int64_t n, const T* p, const T* m, const T* v, const LAMBRule<T>& rule, F f) {
  T u[kTile];
  for (int64_t at = 0; at < n; at += kTile) {
    const int64_t count = std::min(kTile, n - at);
    lamb_directions<T>(count, u, p + at, m + at, v + at, rule);
    f(u, at, count);
  }
}

void lamb_step_cpu(const Tensor& first_param, const std::vector<raw::StepItem>& items, const LAMBOptions& o) {
  raw::dispatch_storage_type(first_param.dtype(), "lamb_step", [&]<class P, class T>() {
    const std::vector<raw::Norms> norms =
        raw::norms_of(items, [&](const raw::StepItem& item, int64_t begin, int64_t end,
                                 raw::SumOfSquares& of_param, raw::SumOfSquares& of_direction) {
          const auto rule = LAMBRuleFactory::of(o).rule<T>(raw::numbers_of(item));
          T *m = item.state[0].ptr<T>() + begin, *v = item.state[1].ptr<T>() + begin;
          raw::for_each_tile<P, T>(
              item.param.ptr<P>() + begin, item.grad.ptr<P>() + begin, end - begin,
              [&](const T* p, const T* g, int64_t at, int64_t n) {
                lamb_moments<T>(n, g, m + at, v + at, rule);
                of_param.add(p, n);
                lamb_tiles<T>(n, p, m + at, v + at, rule,
                              [&](const T* u, int64_t, int64_t count) { of_direction.add(u, count); });
              });
        });
    raw::parallel_over_items(items, [&](const raw::StepItem& item, int64_t begin, int64_t end) {
      const auto rule = LAMBRuleFactory::of(o).rule<T>(raw::numbers_of(item));
      const auto [param, direction] = norms[static_cast<size_t>(&item - items.data())];
      const T rate = rule.rate(param, direction);
      const T *m = item.state[0].ptr<T>() + begin, *v = item.state[1].ptr<T>() + begin;
      raw::for_each_tile<P, T>(item.param.ptr<P>() + begin, item.grad.ptr<P>() + begin, end - begin,
                               [&](T* p, const T*, int64_t at, int64_t n) {
                                 lamb_tiles<T>(n, p, m + at, v + at, rule,
                                               [&](const T* u, int64_t from, int64_t count) {
                                                 for (int64_t i = 0; i < count; ++i)
                                                   p[from + i] -= rate * u[i];
                                               });
                               });
    });
  });
}

}  // namespace

constinit raw::StepSlot<LARSOptions> LARSOptions::step_kernel{"lars_step", &lars_step_cpu};
constinit raw::StepSlot<LAMBOptions> LAMBOptions::step_kernel{"lamb_step", &lamb_step_cpu};

}  // namespace gradus::optim
