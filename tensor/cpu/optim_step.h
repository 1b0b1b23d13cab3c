// What the kernels of all optimizers need: to divide the elements of many tensors among threads, to compute
// elements of 16-bit types in f32, and the loop of those that treat every element alike.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/runtime/flush_denormal.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {

// Calls f(i, begin, end) on parts of tensor i of sizes[i] elements. The elements of all tensors are divided
// among the threads together: many small tensors cost no more than one large one. Denormals are flushed.
template <class F> void over_all(const std::vector<int64_t>& sizes, F f) {
  constexpr int64_t kGrain = 1 << 14;
  const internal::FlushDenormals flush;
  std::vector<int64_t> starts(sizes.size() + 1, 0);
  for (size_t i = 0; i < sizes.size(); ++i) starts[i + 1] = starts[i] + sizes[i];
  parallel_for(0, starts.back(), kGrain, [&](int64_t begin, int64_t end) {
    size_t i =
        static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
    for (; begin < end; begin = starts[++i])
      if (sizes[i]) f(i, begin - starts[i], std::min(end, starts[i + 1]) - starts[i]);
  });
}

template <class F> void over_items(const std::vector<StepItem>& items, F f) {
  std::vector<int64_t> sizes;
  for (const StepItem& item : items) sizes.push_back(item.grad.numel());
  over_all(sizes, [&](size_t i, int64_t begin, int64_t end) { f(items[i], begin, end); });
}

// Calls `f.operator()<P, T>()`. P is the type of stored elements, T the type to compute in.
template <class F> decltype(auto) dispatch_stored(DType t, const char* op, F&& f) {
  if (t == DType::kF16) return f.template operator()<f16, float>();
  if (t == DType::kBF16) return f.template operator()<bf16, float>();
  return dispatch_floating(t, op, [&]<class T>() { return f.template operator()<T, T>(); });
}

// Calls f(p, g, offset, count) with p and g in T: once with all n elements where P is T, else on converted
// tiles. What f leaves in p is stored.
template <class P, class T, class F> void in_tiles(P* p, const P* g, int64_t n, F f) {
  if constexpr (std::is_same_v<P, T>) {
    f(p, g, int64_t(0), n);
  } else {
    constexpr int64_t kTile = 512;
    T wide_p[kTile], wide_g[kTile];
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t count = std::min(kTile, n - at);
      for (int64_t i = 0; i < count; ++i) wide_p[i] = p[at + i], wide_g[i] = g[at + i];
      f(wide_p, wide_g, at, count);
      for (int64_t i = 0; i < count; ++i) p[at + i] = P(wide_p[i]);
    }
  }
}

// The loop has a function of its own: as parameters, __restrict pointers let the compiler turn it
// into vector code.
template <class T, class Rule>
[[gnu::noinline]] void run_rule(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict a,
                                T* __restrict b, T* __restrict c, T sign, T decay, const Rule rule) {
  constexpr Uses uses = Rule::kUses;
  for (int64_t i = 0; i < n; ++i) {
    T none = 0;
    step_element(rule, sign, decay, p[i], g[i], uses[0] ? a[i] : none, uses[1] ? b[i] : none,
                 uses[2] ? c[i] : none);
  }
}

// Updates parameters in one parallel pass over the elements of all. `make.rule<T>(numbers)` returns the rule
// (ops/formulas/optim_rule.h) for a parameter.
template <class Make>
void apply_rule(const char* op, const std::vector<StepItem>& items, double decay, bool maximize, Make make) {
  dispatch_stored(items.front().param.dtype(), op, [&]<class P, class T>() {
    over_items(items, [&](const StepItem& item, int64_t begin, int64_t end) {
      const auto rule = make.template rule<T>(numbers_of(item));
      // `first` and `first_grad` are positions in the parameter and in the gradient.
      const auto run = [&](int64_t first, int64_t first_grad, int64_t count) {
        T* states[3];
        for (size_t k = 0; k < 3; ++k)
          states[k] = item.state[k].defined() ? item.state[k].template ptr<T>() + first : nullptr;
        in_tiles<P, T>(item.param.ptr<P>() + first, item.grad.ptr<P>() + first_grad, count,
                       [&](T* p, const T* g, int64_t at, int64_t n) {
                         const auto state = [&](size_t k) { return states[k] ? states[k] + at : nullptr; };
                         run_rule<T>(n, p, g, state(0), state(1), state(2), maximize ? T(-1) : T(1), T(decay),
                                     rule);
                       });
      };
      if (!item.rows.defined()) return run(begin, begin, end - begin);
      const int64_t width = item.grad.numel() / item.rows.numel(), *const rows = item.rows.ptr<int64_t>();
      for (int64_t i = begin, next; i < end; i = next) {
        next = std::min(end, (i / width + 1) * width);
        run(rows[i / width] * width + i % width, i, next - i);
      }
    });
  });
}

// What an optimizer's step runs its rule by.
struct ApplyOnCPU {
  template <class Make>
  static void rule(const char* op, const std::vector<StepItem>& items, double decay, bool maximize,
                   Make make) {
    apply_rule(op, items, decay, maximize, make);
  }
};

}  // namespace gradus::raw
