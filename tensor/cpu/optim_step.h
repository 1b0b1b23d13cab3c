// What the kernels of all optimizers need: to divide the elements of many tensors among threads, and to
// compute elements of 16-bit types in f32.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {

// Calls f(i, begin, end) on parts of tensor i of sizes[i] elements. The elements of all tensors are divided
// among the threads together: many small tensors cost no more than one large one.
template <class F> void over_all(const std::vector<int64_t>& sizes, F f) {
  constexpr int64_t kGrain = 1 << 14;
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
  for (const StepItem& item : items) sizes.push_back(item.param.numel());
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

}  // namespace gradus::raw
