// Compares fused optimizer steps on the device with the same rules on the host: bit-equal, or, with norms,
// within a bound on roundings.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "device_test.h"
#include "gradus/tensor/cuda/kernels/optim_step.h"

namespace device_test {

// Number of elements of each tensor of a step; first element of its buffers, for misalignment.
struct StepSizes {
  std::vector<int64_t> sizes;
  size_t start = 0;
};
// `most` is the number of tensors in a kernel's table; adds `lists` lists of most, most + 1, ... small
// tensors.
inline std::vector<StepSizes> step_sizes(int most, int lists) {
  const auto tiny = [](int count) { return std::vector<int64_t>(static_cast<size_t>(count), 3); };
  std::vector<StepSizes> all = {
      {{4095, 1, 0, 2, 3, 4097, 4, 5}}, {{7, 8, 9, 8191, 31}, 1}, {{4096, 8195}}, {{2 * 4096 + 3, 255}, 2}};
  for (int i = 0; i < lists; ++i) all.push_back({tiny(most + i)});
  if (lists > 1) all.back().sizes.push_back(4099);  // in the second table
  if (!options().small) all.push_back({{3'000'001, 17, 1 << 20}});
  return all;
}

template <class T> bool have_same_bits(const Elements<T>& a, const Elements<T>& b) {
  const std::vector<T> x = a.take(), y = b.take();
  return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

// Parameters, gradients and states of a step, on the device and on the host. `uses`: which of three states
// exist.
template <class P> class StepCase {
 public:
  using T = cuda::compute_t<P>;
  StepCase(const StepSizes& s, const gradus::raw::UsedStates& uses, bool wild) : uses_(uses) {
    for (size_t i = 0; i < s.sizes.size(); ++i) {
      const auto n = static_cast<size_t>(s.sizes[i]);
      Item item{std::vector<P>(n), std::vector<P>(n), {}, {}, {}};
      for (size_t e = 0; e < n; ++e) {
        item.param[e] = sample<P>(e, 3 * i, false);
        item.grad[e] = sample<P>(e, 3 * i + 1, wild);
      }
      item.at[0] = std::make_unique<Elements<P>>(item.param, s.start);
      item.at[1] = std::make_unique<Elements<P>>(item.grad, s.start);
      cuda::StepArrays arrays{item.at[0]->data(), item.at[1]->data(), {}, s.sizes[i]};
      for (size_t k = 0; k < 3; ++k) {
        if (!uses_[k]) continue;
        item.state[k].resize(n);
        for (size_t e = 0; e < n; ++e) item.state[k][e] = std::abs(sample<T>(e, 3 * i + 2 + k, false));
        item.state_at[k] = std::make_unique<Elements<T>>(item.state[k], s.start);
        arrays.state[k] = item.state_at[k]->data();
      }
      items_.push_back(std::move(item));
      arrays_.push_back(arrays);
    }
  }
  const std::vector<cuda::StepArrays>& arrays() const { return arrays_; }

  // Calls f(p, grad, states) for the elements of tensor i on the host.
  template <class F> void on_host(size_t i, F&& f) {
    Item& item = items_[i];
    for (size_t e = 0; e < item.param.size(); ++e) {
      T p = widened(item.param[e]), s[3] = {};
      for (size_t k = 0; k < 3; ++k)
        if (uses_[k]) s[k] = item.state[k][e];
      f(p, widened(item.grad[e]), s);
      item.param[e] = stored<P>(p);
      for (size_t k = 0; k < 3; ++k)
        if (uses_[k]) item.state[k][e] = s[k];
    }
  }
  // Checks near(device value, host value, tensor, element, array); array: 0 parameter, 1 gradient, 2...
  // states.
  template <class F> void compare(Group& group, F&& near) const {
    for (size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      bool clean = item.at[0]->is_clean() && item.at[1]->is_clean();
      const auto check = [&](const auto& at, const auto& want, size_t which) {
        clean = clean && at.is_clean();
        const auto got = at.take();
        for (size_t e = 0; e < want.size(); ++e)
          group.check(near(got[e], want[e], i, e, which),
                      "tensor %zu of %zu, element %zu of %zu, array %zu: %.9g, not %.9g", i, items_.size(), e,
                      want.size(), which, as_double(got[e]), as_double(want[e]));
      };
      check(*item.at[0], item.param, 0);
      check(*item.at[1], item.grad, 1);
      for (size_t k = 0; k < 3; ++k)
        if (uses_[k]) check(*item.state_at[k], item.state[k], 2 + k);
      group.check(clean, "tensor %zu of %zu: written outside", i, items_.size());
    }
  }
  // Expects the bits of another run of the same step.
  void compare_runs(Group& group, const StepCase& other) const {
    for (size_t i = 0; i < items_.size(); ++i) {
      bool agree = have_same_bits(*items_[i].at[0], *other.items_[i].at[0]);
      for (size_t k = 0; k < 3; ++k)
        if (uses_[k]) agree = agree && have_same_bits(*items_[i].state_at[k], *other.items_[i].state_at[k]);
      group.check(agree, "tensor %zu of %zu: two runs differ", i, items_.size());
    }
  }
  size_t size() const { return items_.size(); }

 private:
  struct Item {
    std::vector<P> param, grad;
    std::array<std::vector<T>, 3> state;
    std::array<std::unique_ptr<Elements<P>>, 2> at;
    std::array<std::unique_ptr<Elements<T>>, 3> state_at;
  };
  gradus::raw::UsedStates uses_;
  std::vector<Item> items_;
  std::vector<cuda::StepArrays> arrays_;
};

template <class Rule>
constexpr int most_in_table = cuda::TensorTable<cuda::optim_step_detail::arrays_of<Rule>>::kMaxTensors;
constexpr int most_in_table_of_numbers = cuda::TensorTable<1>::kMaxTensors;

// Two steps in a row, bit-equal to the host's.
template <class P, class Rule> void test_rule(Group& group, const Rule& rule) {
  using T = cuda::compute_t<P>;
  for (const StepSizes& s : step_sizes(most_in_table<Rule>, 2)) {
    StepCase<P> c(s, Rule::kUses, true);
    for (const T decay : {T(0), T(0.125)}) {
      const T sign = decay == 0 ? T(1) : T(-1);
      cuda::step<P>("test", rule, sign, decay, c.arrays(), nullptr);
      for (size_t i = 0; i < c.size(); ++i)
        c.on_host(i, [&](T& p, T g, T* x) {
          gradus::raw::step_element(rule, sign, decay, p, g, x[0], x[1], x[2]);
        });
    }
    c.compare(group, [](auto got, auto want, size_t, size_t, size_t) { return same(got, want); });
  }
}

// The step numbers of each parameter (count and two more) on the device and on the host. A step whose `found`
// flag (found-inf of GradScaler) is not 0 changes nothing.
template <class Make, class T> class Decided {
 public:
  using Rule = cuda::rule_of<Make, T>;
  explicit Decided(size_t tensors) : rules_(std::max<size_t>(1, tensors * sizeof(Rule))) {
    for (size_t i = 0; i < tensors; ++i) {
      host.push_back({static_cast<double>(i % 3), {0.5, 0.25}});
      there_.push_back(std::make_unique<Elements<double>>(std::vector<double>{host[i].step, 0.5, 0.25}));
      numbers_.push_back(there_.back()->data());
    }
  }
  // Begins a step of the tensors, in the order of `order`.
  cuda::DeviceRules<Rule> begin(const Make& make, const std::vector<size_t>& order, const float* found,
                                const double* lr) {
    std::vector<void*> numbers;
    for (const size_t i : order) numbers.push_back(numbers_[i]);
    auto* const rules = reinterpret_cast<Rule*>(rules_.data());
    cuda::begin_steps<T>("test", make, rules, found, lr, numbers, nullptr);
    return {rules, found};
  }
  // The same on the host.
  Rule begin_on_host(const Make& make, size_t i) {
    host[i].step += 1;
    const Rule rule = make.template rule<T>(host[i]);
    if constexpr (requires { make.advance(host[i]); }) make.advance(host[i]);
    return rule;
  }
  void compare(Group& group) const {
    for (size_t i = 0; i < there_.size(); ++i) {
      const std::vector<double> got = there_[i]->take();
      group.check(got[0] == host[i].step && same(got[1], host[i].more[0]) && same(got[2], host[i].more[1]) &&
                      there_[i]->is_clean(),
                  "numbers of tensor %zu: %g %g %g, not %g %g %g", i, got[0], got[1], got[2], host[i].step,
                  host[i].more[0], host[i].more[1]);
    }
  }

  std::vector<gradus::raw::StepNumbers> host;

 private:
  std::vector<std::unique_ptr<Elements<double>>> there_;
  std::vector<void*> numbers_;
  Buffer rules_;
};

// Tensors with elements come first.
inline std::vector<size_t> order_of(const std::vector<int64_t>& sizes) {
  std::vector<size_t> order;
  for (const bool is_empty : {false, true})
    for (size_t i = 0; i < sizes.size(); ++i)
      if ((sizes[i] == 0) == is_empty) order.push_back(i);
  return order;
}

// `make` with a NaN learning rate: the kernel must use the one on the device.
template <class Make> Make without_rate(Make make) {
  make.lr = std::numeric_limits<double>::quiet_NaN();
  return make;
}

// Three steps; the second is skipped by its found flag. Rules of `make` have the same bits on host and
// device.
template <class P, class Make> void test_decided_there(Group& group, const Make& make) {
  using T = cuda::compute_t<P>;
  using Rule = cuda::rule_of<Make, T>;
  const Elements<float> no(std::vector<float>{0}), yes(std::vector<float>{1});
  const Elements<double> lr(std::vector<double>{make.lr});
  const float* const founds[] = {no.data(), yes.data(), nullptr};
  for (const StepSizes& s : step_sizes(std::max(most_in_table<Rule>, most_in_table_of_numbers), 2)) {
    StepCase<P> c(s, Rule::kUses, true);
    Decided<Make, T> decided(s.sizes.size());
    for (const float* const found : founds) {
      const auto known = found ? decided.begin(without_rate(make), order_of(s.sizes), found, lr.data())
                               : decided.begin(make, order_of(s.sizes), found, nullptr);
      cuda::step<P>("test", Rule{}, T(1), T(0.125), c.arrays(), nullptr, known);
      if (found == yes.data()) continue;
      for (size_t i = 0; i < c.size(); ++i) {
        const Rule rule = decided.begin_on_host(make, i);
        c.on_host(i, [&](T& p, T g, T* x) {
          gradus::raw::step_element(rule, T(1), T(0.125), p, g, x[0], x[1], x[2]);
        });
      }
    }
    c.compare(group, [](auto got, auto want, size_t, size_t, size_t) { return same(got, want); });
    decided.compare(group);
  }
}

// A step by rules made on the device has the bits of one by the host's rule; a skipped step changes nothing.
// `make` returns the same rule for all steps.
template <class P, class Make> void test_decided_by_norms_there(Group& group, const Make& make) {
  using T = cuda::compute_t<P>;
  using Rule = cuda::rule_of<Make, T>;
  const Elements<float> no(std::vector<float>{0}), yes(std::vector<float>{1});
  const Elements<double> lr(std::vector<double>{make.lr});
  for (const StepSizes& s : step_sizes(most_in_table<Rule>, std::is_same_v<P, float> ? 2 : 0)) {
    const Rule rule = make.template rule<T>(gradus::raw::StepNumbers{}),
               rateless = without_rate(make).template rule<T>(gradus::raw::StepNumbers{});
    StepCase<P> c(s, Rule::kUses, false), other(s, Rule::kUses, false);
    const Buffer workspace(static_cast<size_t>(cuda::norms_workspace(c.arrays())));
    Decided<Make, T> decided(s.sizes.size());
    cuda::step_by_norms<P>("test", rule, other.arrays(), workspace.data(), nullptr);
    for (const Elements<float>* found : {&yes, &no}) {
      const auto known = decided.begin(without_rate(make), order_of(s.sizes), found->data(), lr.data());
      cuda::step_by_norms<P>("test", rateless, c.arrays(), workspace.data(), nullptr, known);
    }
    MUST(cudaDeviceSynchronize());
    c.compare_runs(group, other);
  }
}

// f64 sums in another order than the host's: the rate differs by a unit in the last place of T, or by one f64
// unit per element. The tolerance is the effect of that on the step, and four roundings.
template <class P, class Rule> void test_rule_by_norms(Group& group, const Rule& rule) {
  using T = cuda::compute_t<P>;
  constexpr double kUnit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
  constexpr double kUnitOfParam = std::is_same_v<P, bf16> ? 0x1p-8 : std::is_same_v<P, f16> ? 0x1p-11 : kUnit;
  for (const StepSizes& s : step_sizes(most_in_table<Rule>, std::is_same_v<P, float> ? 2 : 0)) {
    StepCase<P> c(s, Rule::kUses, false), again(s, Rule::kUses, false);
    for (const StepCase<P>* one : {&c, &again}) {
      const Buffer workspace(static_cast<size_t>(cuda::norms_workspace(one->arrays())));
      cuda::step_by_norms<P>("test", rule, one->arrays(), workspace.data(), nullptr);
      MUST(cudaDeviceSynchronize());
    }
    std::vector<std::vector<std::array<double, 5>>> allowed(c.size());
    for (size_t i = 0; i < c.size(); ++i) {
      double first = 0, second = 0;
      c.on_host(i, [&](T& p, T g, T* x) {
        const auto v = rule.measure(p, g, x[0], x[1], x[2]);
        first += double(v.first) * double(v.first), second += double(v.second) * double(v.second);
      });
      const T rate = rule.rate(std::sqrt(first), std::sqrt(second));
      const double off = 2 * kUnit + 0x1p-52 * static_cast<double>(s.sizes[i]);
      c.on_host(i, [&](T& p, T g, T* x) {
        T low[4] = {p, x[0], x[1], x[2]}, high[4] = {p, x[0], x[1], x[2]};
        rule.step(static_cast<T>(double(rate) * (1 - 2 * off)), low[0], g, low[1], low[2], low[3]);
        rule.step(static_cast<T>(double(rate) * (1 + 2 * off)), high[0], g, high[1], high[2], high[3]);
        rule.step(rate, p, g, x[0], x[1], x[2]);
        std::array<double, 5> a{};
        for (size_t k = 0; k < 4; ++k)
          a[k == 0 ? 0 : k + 1] =
              std::abs(double(high[k]) - double(low[k])) +
              4 * (k == 0 ? kUnitOfParam : kUnit) * (std::abs(double(low[k])) + std::abs(double(high[k])));
        allowed[i].push_back(a);
      });
    }
    c.compare(group, [&](auto got, auto want, size_t i, size_t e, size_t which) {
      return std::abs(as_double(got) - as_double(want)) <= allowed[i][e][which];
    });
    c.compare_runs(group, again);
  }
}

}  // namespace device_test
