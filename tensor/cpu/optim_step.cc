// Optimizer steps on the CPU that treat every element alike, in one parallel pass over the elements
// of all parameters.
#include "gradus/tensor/cpu/optim_step.h"

#include <array>

#include "gradus/tensor/kernel.h"

namespace gradus::raw {
namespace {

// A rule is the step of one element: rule(p, d, a, b, c) with d = sign grad + decay p, and the states that
// the rule uses. Its numbers have the type in which it computes, so that its loop is vector code.
using Uses = std::array<bool, 3>;

// The loop has a function of its own: as parameters, __restrict pointers let the compiler turn it
// into vector code.
template <class T, class Rule>
[[gnu::noinline]] void run_rule(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict a,
                                T* __restrict b, T* __restrict c, T sign, T decay, const Rule rule) {
  constexpr Uses uses = Rule::kUses;
  for (int64_t i = 0; i < n; ++i) {
    T none = 0;
    const T d = sign * g[i] + decay * p[i];
    rule(p[i], d, uses[0] ? a[i] : none, uses[1] ? b[i] : none, uses[2] ? c[i] : none);
  }
}

// `make.operator()<T>(item)` returns the rule for a parameter.
template <class Make>
void step(const char* op, const std::vector<StepItem>& items, double decay, bool maximize, Make make) {
  dispatch_stored(items.front().param.dtype(), op, [&]<class P, class T>() {
    over_items(items, [&](const StepItem& item, int64_t begin, int64_t end) {
      const auto rule = make.template operator()<T>(item);
      T* states[3];
      for (size_t k = 0; k < 3; ++k)
        states[k] = item.state[k].defined() ? item.state[k].template ptr<T>() + begin : nullptr;
      in_tiles<P, T>(item.param.ptr<P>() + begin, item.grad.ptr<P>() + begin, end - begin,
                     [&](T* p, const T* g, int64_t at, int64_t n) {
                       const auto state = [&](size_t k) { return states[k] ? states[k] + at : nullptr; };
                       run_rule<T>(n, p, g, state(0), state(1), state(2), maximize ? T(-1) : T(1), T(decay),
                                   rule);
                     });
    });
  });
}

template <class T> struct SGDRule {
  static constexpr Uses kUses = {};
  T lr;
  void operator()(T& p, T d, T&, T&, T&) const { p -= lr * d; }
};

// b = keep b + take d;  p -= lr (direct d + ahead b)
template <class T> struct MomentumRule {
  static constexpr Uses kUses = {true};
  T lr, keep, take, direct, ahead;
  void operator()(T& p, T d, T& b, T&, T&) const {
    b = keep * b + take * d;
    p -= lr * (direct * d + ahead * b);
  }
};

void sgd_step_cpu(const Tensor&, const std::vector<StepItem>& items, const SGDStep& o) {
  if (o.momentum == 0)
    return step("sgd_step", items, o.weight_decay, o.maximize,
                [&]<class T>(const StepItem&) { return SGDRule<T>{T(o.lr)}; });
  step("sgd_step", items, o.weight_decay, o.maximize, [&]<class T>(const StepItem& item) {
    // A new buffer is zero. The first gradient enters it undamped.
    const bool fresh = item.step == 1;
    return MomentumRule<T>{.lr = T(o.lr),
                           .keep = fresh ? T(0) : T(o.momentum),
                           .take = fresh ? T(1) : T(1 - o.dampening),
                           .direct = o.nesterov ? T(1) : T(0),
                           .ahead = o.nesterov ? T(o.momentum) : T(1)};
  });
}

double correction(double beta, int64_t step) { return 1 - std::pow(beta, double(step)); }

// The two moments that most rules use.
template <class T> struct Moments {
  T b1, c1, b2, c2;
  template <class Options> static Moments of(const Options& o) {
    return {T(o.beta1), T(1 - o.beta1), T(o.beta2), T(1 - o.beta2)};
  }
  void update(T d, T& m, T& v) const {
    m = b1 * m + c1 * d;
    v = b2 * v + c2 * d * d;
  }
};

template <class T, bool amsgrad> struct AdamRule {
  static constexpr Uses kUses = {true, true, amsgrad};
  Moments<T> moments;
  T shrink, rate, root, eps;
  void operator()(T& p, T d, T& m, T& v, T& top) const {
    moments.update(d, m, v);
    T second = v;
    if constexpr (amsgrad) second = top = top < v ? v : top;
    p = shrink * p - rate * m / (std::sqrt(second) * root + eps);
  }
};

template <bool amsgrad> void adam(const std::vector<StepItem>& items, const AdamStep& o) {
  step("adam_step", items, o.decoupled ? 0 : o.weight_decay, o.maximize, [&]<class T>(const StepItem& item) {
    return AdamRule<T, amsgrad>{.moments = Moments<T>::of(o),
                                .shrink = o.decoupled ? T(1 - o.lr * o.weight_decay) : T(1),
                                .rate = T(o.lr / correction(o.beta1, item.step)),
                                .root = T(1 / std::sqrt(correction(o.beta2, item.step))),
                                .eps = T(o.eps)};
  });
}

void adam_step_cpu(const Tensor&, const std::vector<StepItem>& items, const AdamStep& o) {
  o.amsgrad ? adam<true>(items, o) : adam<false>(items, o);
}

template <class T> struct AdamaxRule {
  static constexpr Uses kUses = {true, true};
  T b1, c1, b2, rate, eps;
  void operator()(T& p, T d, T& m, T& u, T&) const {
    m = b1 * m + c1 * d;
    const T old = b2 * u, now = std::abs(d) + eps;
    u = old > now ? old : now;
    p -= rate * m / u;
  }
};

void adamax_step_cpu(const Tensor&, const std::vector<StepItem>& items, const AdamaxStep& o) {
  step("adamax_step", items, o.weight_decay, o.maximize, [&]<class T>(const StepItem& item) {
    return AdamaxRule<T>{.b1 = T(o.beta1),
                         .c1 = T(1 - o.beta1),
                         .b2 = T(o.beta2),
                         .rate = T(o.lr / correction(o.beta1, item.step)),
                         .eps = T(o.eps)};
  });
}

// p -= (now d + ahead m) / (sqrt(v) root + eps)
template <class T> struct NAdamRule {
  static constexpr Uses kUses = {true, true};
  Moments<T> moments;
  T now, ahead, root, eps;
  void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= (now * d + ahead * m) / (std::sqrt(v) * root + eps);
  }
};

void nadam_step_cpu(const Tensor&, const std::vector<StepItem>& items, const NAdamStep& o) {
  step("nadam_step", items, o.weight_decay, o.maximize, [&]<class T>(const StepItem& item) {
    const double mu = nadam_mu(o.beta1, o.momentum_decay, item.step),
                 next = nadam_mu(o.beta1, o.momentum_decay, item.step + 1), product = item.numbers[0] * mu;
    return NAdamRule<T>{.moments = Moments<T>::of(o),
                        .now = T(o.lr * (1 - mu) / (1 - product)),
                        .ahead = T(o.lr * next / (1 - product * next)),
                        .root = T(1 / std::sqrt(correction(o.beta2, item.step))),
                        .eps = T(o.eps)};
  });
}

// p -= rate m / (root sqrt(v) + rest)
template <class T> struct RAdamRule {
  static constexpr Uses kUses = {true, true};
  Moments<T> moments;
  T rate, root, rest;
  void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= rate * m / (root * std::sqrt(v) + rest);
  }
};

void radam_step_cpu(const Tensor&, const std::vector<StepItem>& items, const RAdamStep& o) {
  step("radam_step", items, o.weight_decay, o.maximize, [&]<class T>(const StepItem& item) {
    const double c2 = correction(o.beta2, item.step), r = 2 / (1 - o.beta2) - 1,
                 rho = r - 2 * double(item.step) * std::pow(o.beta2, double(item.step)) / c2;
    double rate = o.lr / correction(o.beta1, item.step);
    const bool adapts = rho > 5;
    if (adapts) rate *= std::sqrt((rho - 4) * (rho - 2) * r / ((r - 4) * (r - 2) * rho)) * std::sqrt(c2);
    return RAdamRule<T>{.moments = Moments<T>::of(o),
                        .rate = T(rate),
                        .root = adapts ? T(1) : T(0),
                        .rest = adapts ? T(o.eps) : T(1)};
  });
}

template <class T> struct AdadeltaRule {
  static constexpr Uses kUses = {true, true};
  T lr, rho, fresh, eps;
  void operator()(T& p, T d, T& v, T& u, T&) const {
    v = rho * v + fresh * d * d;
    const T delta = std::sqrt((u + eps) / (v + eps)) * d;
    u = rho * u + fresh * delta * delta;
    p -= lr * delta;
  }
};

void adadelta_step_cpu(const Tensor&, const std::vector<StepItem>& items, const AdadeltaStep& o) {
  step("adadelta_step", items, o.weight_decay, o.maximize, [&]<class T>(const StepItem&) {
    return AdadeltaRule<T>{T(o.lr), T(o.rho), T(1 - o.rho), T(o.eps)};
  });
}

template <class T> struct AdagradRule {
  static constexpr Uses kUses = {true};
  T rate, eps;
  void operator()(T& p, T d, T& sum, T&, T&) const {
    sum += d * d;
    p -= rate * d / (std::sqrt(sum) + eps);
  }
};

void adagrad_step_cpu(const Tensor&, const std::vector<StepItem>& items, const AdagradStep& o) {
  step("adagrad_step", items, o.weight_decay, o.maximize, [&]<class T>(const StepItem& item) {
    return AdagradRule<T>{T(o.lr / (1 + double(item.step - 1) * o.lr_decay)), T(o.eps)};
  });
}

template <class T, bool momentum, bool centered> struct RMSpropRule {
  static constexpr Uses kUses = {true, momentum, centered};
  T lr, keep, fresh, eps, mass;
  void operator()(T& p, T d, T& v, T& b, T& mean) const {
    v = keep * v + fresh * d * d;
    T square = v;
    if constexpr (centered) {
      mean = keep * mean + fresh * d;
      // Rounding may make the variance of a constant negative.
      square = v - mean * mean;
      square = square > T(0) ? square : square < T(0) ? T(0) : square;
    }
    T change = d / (std::sqrt(square) + eps);
    if constexpr (momentum) change = b = mass * b + change;
    p -= lr * change;
  }
};

template <bool momentum, bool centered>
void rmsprop(const std::vector<StepItem>& items, const RMSpropStep& o) {
  step("rmsprop_step", items, o.weight_decay, o.maximize, [&]<class T>(const StepItem&) {
    return RMSpropRule<T, momentum, centered>{T(o.lr), T(o.alpha), T(1 - o.alpha), T(o.eps), T(o.momentum)};
  });
}

void rmsprop_step_cpu(const Tensor&, const std::vector<StepItem>& items, const RMSpropStep& o) {
  if (o.momentum == 0) return o.centered ? rmsprop<false, true>(items, o) : rmsprop<false, false>(items, o);
  return o.centered ? rmsprop<true, true>(items, o) : rmsprop<true, false>(items, o);
}

// Returns the sign of x; a NaN stays NaN, so that it shows. One selection, because compilers do not
// vectorize nested ones.
template <class T> T sign_of(T x) {
  const T one = std::copysign(T(1), x);
  return std::abs(x) > T(0) ? one : x;
}

template <class T> struct LionRule {
  static constexpr Uses kUses = {true};
  T lr, shrink, b1, c1, b2, c2;
  void operator()(T& p, T d, T& m, T&, T&) const {
    p = shrink * p - lr * sign_of(b1 * m + c1 * d);
    m = b2 * m + c2 * d;
  }
};

void lion_step_cpu(const Tensor&, const std::vector<StepItem>& items, const LionStep& o) {
  step("lion_step", items, 0, o.maximize, [&]<class T>(const StepItem&) {
    return LionRule<T>{T(o.lr),       T(1 - o.lr * o.weight_decay), T(o.beta1), T(1 - o.beta1), T(o.beta2),
                       T(1 - o.beta2)};
  });
}

template <class T> struct RpropRule {
  static constexpr Uses kUses = {true, true};
  T eta_minus, eta_plus, min_step, max_step;
  void operator()(T& p, T d, T& previous, T& size, T&) const {
    const T turn = d * previous;
    const T unless_turned = turn > T(0) ? eta_plus : T(1);
    size *= turn < T(0) ? eta_minus : unless_turned;
    size = std::min(std::max(size, min_step), max_step);
    const T used = turn < T(0) ? T(0) : d;
    p -= sign_of(used) * size;
    previous = used;
  }
};

void rprop_step_cpu(const Tensor&, const std::vector<StepItem>& items, const RpropStep& o) {
  step("rprop_step", items, 0, o.maximize, [&]<class T>(const StepItem&) {
    return RpropRule<T>{T(o.eta_minus), T(o.eta_plus), T(o.min_step), T(o.max_step)};
  });
}

template <class T> struct ASGDRule {
  static constexpr Uses kUses = {true};
  T eta, shrink, mu;
  void operator()(T& p, T d, T& average, T&, T&) const {
    p = shrink * p - eta * d;
    average = mu == T(1) ? p : average + mu * (p - average);
  }
};

void asgd_step_cpu(const Tensor&, const std::vector<StepItem>& items, const ASGDStep& o) {
  step("asgd_step", items, o.weight_decay, o.maximize, [&]<class T>(const StepItem& item) {
    const auto [eta, mu] = item.numbers;
    return ASGDRule<T>{T(eta), T(1 - o.lambd * eta), T(mu)};
  });
}

template <class T> struct AverageRule {
  static constexpr Uses kUses = {};
  T weight;
  void operator()(T& p, T d, T&, T&, T&) const { p = weight == T(1) ? d : p + weight * (d - p); }
};

void average_step_cpu(const Tensor&, const std::vector<StepItem>& items, const AverageStep& o) {
  step("average_step", items, 0, false,
       [&]<class T>(const StepItem&) { return AverageRule<T>{T(o.weight)}; });
}

}  // namespace

constinit StepSlot<SGDStep> sgd_step_kernel{"sgd_step", &sgd_step_cpu};
constinit StepSlot<AdamStep> adam_step_kernel{"adam_step", &adam_step_cpu};
constinit StepSlot<AdamaxStep> adamax_step_kernel{"adamax_step", &adamax_step_cpu};
constinit StepSlot<NAdamStep> nadam_step_kernel{"nadam_step", &nadam_step_cpu};
constinit StepSlot<RAdamStep> radam_step_kernel{"radam_step", &radam_step_cpu};
constinit StepSlot<AdadeltaStep> adadelta_step_kernel{"adadelta_step", &adadelta_step_cpu};
constinit StepSlot<AdagradStep> adagrad_step_kernel{"adagrad_step", &adagrad_step_cpu};
constinit StepSlot<RMSpropStep> rmsprop_step_kernel{"rmsprop_step", &rmsprop_step_cpu};
constinit StepSlot<LionStep> lion_step_kernel{"lion_step", &lion_step_cpu};
constinit StepSlot<RpropStep> rprop_step_kernel{"rprop_step", &rprop_step_cpu};
constinit StepSlot<ASGDStep> asgd_step_kernel{"asgd_step", &asgd_step_cpu};
constinit StepSlot<AverageStep> average_step_kernel{"average_step", &average_step_cpu};

}  // namespace gradus::raw
