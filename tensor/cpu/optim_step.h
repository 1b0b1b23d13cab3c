// Common parts of the CPU kernels of optimizers: parallel loops over the elements of many tensors, conversion of
// 16-bit parameters to f32, and the loop that applies an element-wise update rule.
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

// Calls f(i, begin, end) in parallel on ranges of the elements of tensor i, which has sizes[i] elements. The
// elements of all tensors are divided among the threads as one range, so many small tensors are one parallel loop.
// Denormals are flushed to zero.
template <class F> void parallel_over_all(const std::vector<int64_t>& sizes, F f) {
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

// Calls f(item, begin, end) in parallel on ranges of the items' gradients.
template <class F> void parallel_over_items(const std::vector<StepItem>& items, F f) {
  std::vector<int64_t> sizes;
  for (const StepItem& item : items) sizes.push_back(item.grad.numel());
  parallel_over_all(sizes, [&](size_t i, int64_t begin, int64_t end) { f(items[i], begin, end); });
}

// Calls f.operator()<P, T>(): P is the element type of dtype t, T the type to compute in (f32 for 16-bit types).
// Errors: DTypeError naming `op` unless t is floating.
template <class F> decltype(auto) dispatch_storage_type(DType t, const char* op, F&& f) {
  if (t == DType::kF16) return f.template operator()<f16, float>();
  if (t == DType::kBF16) return f.template operator()<bf16, float>();
  return dispatch_floating(t, op, [&]<class T>() { return f.template operator()<T, T>(); });
}

// Calls f(p, g, offset, count) with parameters p and gradients g as arrays of T: once with all n elements if P is
// T, else tile by tile on converted copies. Values that f writes to p are stored to the original array.
template <class P, class T, class F> void for_each_tile(P* p, const P* g, int64_t n, F f) {
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

// Applies `rule` by step_element() to n elements: parameter p, gradient g, states a, b and c (null: unused). A
// separate function, because the compiler vectorizes the loop only if its __restrict pointers are parameters.
template <class T, class Rule>
[[gnu::noinline]] void run_rule(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict a,
                                T* __restrict b, T* __restrict c, T sign, T decay, const Rule rule) {
  constexpr UsedStates uses = Rule::kUses;
  for (int64_t i = 0; i < n; ++i) {
    T none = 0;
    step_element(rule, sign, decay, p[i], g[i], uses[0] ? a[i] : none, uses[1] ? b[i] : none,
                 uses[2] ? c[i] : none);
  }
}

// Runs an optimizer's update rule on the CPU. The counterpart for GPUs is cuda::ApplyOnCuda.
struct ApplyOnCPU {
  // Updates all parameters, of one dtype, in one parallel pass. `make.rule<T>(numbers)` returns the update rule of
  // a parameter (ops/formulas/optim_rule.h). `decay`: L2 weight decay. With item.rows (distinct)
  // the gradient is sparse: its row i belongs to row rows[i] of the parameter.
  template <class Make>
  static void rule(const char* op, const std::vector<StepItem>& items, double decay, bool maximize,
                   Make make) {
    dispatch_storage_type(items.front().param.dtype(), op, [&]<class P, class T>() {
      parallel_over_items(items, [&](const StepItem& item, int64_t begin, int64_t end) {
        const auto update = make.template rule<T>(numbers_of(item));
        // `first` and `first_grad` are element offsets in the parameter and in the gradient.
        const auto run = [&](int64_t first, int64_t first_grad, int64_t count) {
          T* states[3];
          for (size_t k = 0; k < 3; ++k)
            states[k] = item.state[k].defined() ? item.state[k].template ptr<T>() + first : nullptr;
          for_each_tile<P, T>(
              item.param.ptr<P>() + first, item.grad.ptr<P>() + first_grad, count,
              [&](T* p, const T* g, int64_t at, int64_t n) {
                const auto state = [&](size_t k) { return states[k] ? states[k] + at : nullptr; };
                run_rule<T>(n, p, g, state(0), state(1), state(2), maximize ? T(-1) : T(1), T(decay), update);
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
};

}  // namespace gradus::raw
