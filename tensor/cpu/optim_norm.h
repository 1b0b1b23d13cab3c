// L2 norms of whole tensors, for kernels of optimizers. Blocks of fixed size are summed in f64 in a fixed order,
// so a norm does not depend on the number of threads.
#pragma once

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::raw {

// Elements [begin, end) of tensor number `tensor` of a list.
struct Block {
  size_t tensor;
  int64_t begin, end;
};

// Divides tensors of these sizes into blocks of at most 2^14 elements.
inline std::vector<Block> blocks_of(const std::vector<int64_t>& sizes) {
  constexpr int64_t kBlock = 1 << 14;
  std::vector<Block> blocks;
  for (size_t t = 0; t < sizes.size(); ++t)
    for (int64_t b = 0; b < sizes[t]; b += kBlock) blocks.push_back({t, b, std::min(b + kBlock, sizes[t])});
  return blocks;
}

// Calls f(block, index of the block) in parallel.
template <class F> void parallel_over_blocks(const std::vector<Block>& blocks, F f) {
  parallel_for(0, static_cast<int64_t>(blocks.size()), 2, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(blocks[static_cast<size_t>(i)], static_cast<size_t>(i));
  });
}

// A sum of squares in 16 independent f64 partial sums (4 vectors of 4), which hide the latency of the additions.
struct SumOfSquares {
  using Vector [[gnu::vector_size(32)]] = double;
  Vector partial[4] = {};

  // Adds x[i]^2 for i < n.
  template <class T> void add(const T* x, int64_t n) {
    const auto load = [x](int64_t i) {
      return Vector{double(x[i]), double(x[i + 1]), double(x[i + 2]), double(x[i + 3])};
    };
    Vector a = partial[0], b = partial[1], c = partial[2], d = partial[3];
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const Vector p = load(i), q = load(i + 4), r = load(i + 8), s = load(i + 12);
      a += p * p, b += q * q, c += r * r, d += s * s;
    }
    for (; i < n; ++i) a[i % 4] += double(x[i]) * double(x[i]);
    partial[0] = a, partial[1] = b, partial[2] = c, partial[3] = d;
  }
  double sum() const {
    const Vector total = (partial[0] + partial[1]) + (partial[2] + partial[3]);
    return (total[0] + total[1]) + (total[2] + total[3]);
  }
};

// The two L2 norms of an item, such as of a parameter and of its update (LARS, LAMB).
struct Norms {
  double first = 0, second = 0;
};
// Returns the norms of each item. f(item, begin, end, first, second) adds the elements [begin, end) to the
// SumOfSquares `first` and `second`.
template <class F> std::vector<Norms> norms_of(const std::vector<StepItem>& items, F f) {
  std::vector<int64_t> sizes;
  for (const StepItem& item : items) sizes.push_back(item.param.numel());
  const std::vector<Block> blocks = blocks_of(sizes);
  std::vector<Norms> partial(blocks.size()), norms(items.size());
  parallel_over_blocks(blocks, [&](const Block& b, size_t i) {
    SumOfSquares first, second;
    f(items[b.tensor], b.begin, b.end, first, second);
    partial[i] = {first.sum(), second.sum()};
  });
  for (size_t i = 0; i < blocks.size(); ++i) {
    norms[blocks[i].tensor].first += partial[i].first;
    norms[blocks[i].tensor].second += partial[i].second;
  }
  for (Norms& n : norms) n = {std::sqrt(n.first), std::sqrt(n.second)};
  return norms;
}

}  // namespace gradus::raw
