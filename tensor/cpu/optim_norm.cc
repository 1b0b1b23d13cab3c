// Kernels that need norms of whole tensors: gradient clipping, LAMB, LARS. Blocks of fixed size are summed in
// f64 in a fixed order, so a sum is the same for any number of threads.
#include <atomic>
#include <limits>

#include "gradus/tensor/cpu/optim_step.h"
#include "gradus/tensor/kernel.h"

namespace gradus::raw {
namespace {

struct Block {
  size_t tensor;
  int64_t begin, end;
};

std::vector<Block> blocks_of(const std::vector<int64_t>& sizes) {
  constexpr int64_t kBlock = 1 << 14;
  std::vector<Block> blocks;
  for (size_t t = 0; t < sizes.size(); ++t)
    for (int64_t b = 0; b < sizes[t]; b += kBlock) blocks.push_back({t, b, std::min(b + kBlock, sizes[t])});
  return blocks;
}

// Calls f(block, index of the block) in parallel.
template <class F> void over_blocks(const std::vector<Block>& blocks, F f) {
  parallel_for(0, static_cast<int64_t>(blocks.size()), 2, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(blocks[static_cast<size_t>(i)], static_cast<size_t>(i));
  });
}

// A sum of squares in four vectors of four parts. A single sum would wait for each addition
// before the next one.
struct Squares {
  using Part [[gnu::vector_size(32)]] = double;
  Part parts[4] = {};

  template <class T> void add(const T* x, int64_t n) {
    const auto load = [x](int64_t i) {
      return Part{double(x[i]), double(x[i + 1]), double(x[i + 2]), double(x[i + 3])};
    };
    Part a = parts[0], b = parts[1], c = parts[2], d = parts[3];
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const Part p = load(i), q = load(i + 4), r = load(i + 8), s = load(i + 12);
      a += p * p, b += q * q, c += r * r, d += s * s;
    }
    for (; i < n; ++i) a[i % 4] += double(x[i]) * double(x[i]);
    parts[0] = a, parts[1] = b, parts[2] = c, parts[3] = d;
  }
  double sum() const {
    const Part total = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    return (total[0] + total[1]) + (total[2] + total[3]);
  }
};

template <class T> double power_sum(const T* x, int64_t n, double p) {
  double sum = 0;
  if (std::isinf(p)) {
    for (int64_t k = 0; k < n; ++k) {
      const double a = std::abs(double(x[k]));
      sum = a > sum || std::isnan(a) ? a : sum;  // NaN stays: no number compares greater
    }
  } else if (p == 2) {
    Squares squares;
    squares.add(x, n);
    sum = squares.sum();
  } else if (p == 1) {
    for (int64_t k = 0; k < n; ++k) sum += std::abs(double(x[k]));
  } else {
    for (int64_t k = 0; k < n; ++k) sum += std::pow(std::abs(double(x[k])), p);
  }
  return sum;
}

std::vector<int64_t> sizes_of(const std::vector<Tensor>& tensors) {
  std::vector<int64_t> sizes;
  for (const Tensor& t : tensors) sizes.push_back(t.numel());
  return sizes;
}

void norm_of_cpu(const Tensor& out, const std::vector<Tensor>& tensors, double p) {
  const std::vector<Block> blocks = blocks_of(sizes_of(tensors));
  std::vector<double> partial(blocks.size());
  over_blocks(blocks, [&](const Block& b, size_t i) {
    dispatch_stored(tensors[b.tensor].dtype(), "norm_of", [&]<class P, class T>() {
      partial[i] = power_sum(tensors[b.tensor].ptr<P>() + b.begin, b.end - b.begin, p);
    });
  });
  const bool largest = std::isinf(p);
  double total = 0;
  for (double s : partial) total = !largest ? total + s : s > total || std::isnan(s) ? s : total;
  if (!largest) total = p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
  dispatch_floating(out.dtype(), "norm_of", [&]<class T>() { *out.ptr<T>() = static_cast<T>(total); });
}

// Calls f(pointer, count, T()) on parts of the tensors in parallel.
template <class F> void over_tensors(const char* op, const std::vector<Tensor>& tensors, F f) {
  over_all(sizes_of(tensors), [&](size_t i, int64_t begin, int64_t end) {
    dispatch_stored(tensors[i].dtype(), op,
                    [&]<class P, class T>() { f(tensors[i].ptr<P>() + begin, end - begin, T()); });
  });
}

void clip_by_norm_cpu(const Tensor& norm, const std::vector<Tensor>& tensors, double max_norm) {
  const double total =
      dispatch_floating(norm.dtype(), "clip_by_norm_", [&]<class T>() { return double(*norm.ptr<T>()); });
  const double scale = max_norm / (total + 1e-6);
  if (scale >= 1) return;
  over_tensors("clip_by_norm_", tensors, [scale]<class P, class T>(P* x, int64_t n, T) {
    const T factor = T(scale);
    for (int64_t i = 0; i < n; ++i) x[i] = P(T(x[i]) * factor);
  });
}

void clip_by_value_cpu(const Tensor&, const std::vector<Tensor>& tensors, double limit) {
  over_tensors("clip_by_value_", tensors, [limit]<class P, class T>(P* x, int64_t n, T) {
    const T low = T(-limit), high = T(limit);
    for (int64_t i = 0; i < n; ++i) {
      const T v = x[i];
      x[i] = P(v < low ? low : v > high ? high : v);  // NaN stays
    }
  });
}

void unscale_cpu(const Tensor& found, const std::vector<Tensor>& tensors, double factor) {
  std::atomic<bool> any = false;
  over_tensors("unscale_", tensors, [&any, factor]<class P, class T>(P* x, int64_t n, T) {
    const T by = T(factor), largest = std::numeric_limits<T>::max();
    int bad = 0;
    for (int64_t i = 0; i < n; ++i) {
      const T v = T(x[i]) * by;
      bad |= !(std::abs(v) <= largest);  // NaN too
      x[i] = P(v);
    }
    if (bad) any = true;
  });
  *found.ptr<float>() = any;
}

// Two norms of each item. f(item, begin, end, first, second) adds the squares of a block to both.
struct Norms {
  double first = 0, second = 0;
};
template <class F> std::vector<Norms> norms_of(const std::vector<StepItem>& items, F f) {
  std::vector<int64_t> sizes;
  for (const StepItem& item : items) sizes.push_back(item.param.numel());
  const std::vector<Block> blocks = blocks_of(sizes);
  std::vector<Norms> partial(blocks.size()), norms(items.size());
  over_blocks(blocks, [&](const Block& b, size_t i) {
    Squares first, second;
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

template <class T> struct LAMBNumbers {
  T sign, b1, c1, b2, c2, first, root, eps, decay;
};

template <class T>
void lamb_moments(int64_t n, const T* __restrict g, T* __restrict m, T* __restrict v,
                  const LAMBNumbers<T> k) {
  for (int64_t i = 0; i < n; ++i) {
    const T d = k.sign * g[i];
    m[i] = k.b1 * m[i] + k.c1 * d;
    v[i] = k.b2 * v[i] + k.c2 * d * d;
  }
}

template <class T>
void lamb_directions(int64_t n, T* __restrict u, const T* __restrict p, const T* __restrict m,
                     const T* __restrict v, const LAMBNumbers<T> k) {
  for (int64_t i = 0; i < n; ++i) u[i] = k.first * m[i] / (std::sqrt(v[i]) * k.root + k.eps) + k.decay * p[i];
}

template <class T> LAMBNumbers<T> lamb_numbers(const LAMBStep& o, int64_t step) {
  const auto correction = [&](double beta) {
    return o.bias_correction ? 1 - std::pow(beta, double(step)) : 1.0;
  };
  return {.sign = o.maximize ? T(-1) : T(1),
          .b1 = T(o.beta1),
          .c1 = T(1 - o.beta1),
          .b2 = T(o.beta2),
          .c2 = T(1 - o.beta2),
          .first = T(1 / correction(o.beta1)),
          .root = T(1 / std::sqrt(correction(o.beta2))),
          .eps = T(o.eps),
          .decay = T(o.weight_decay)};
}

// The directions are not stored but computed twice: for their norm, and for the step.
constexpr int64_t kTile = 512;

template <class T, class F>
void lamb_tiles(int64_t n, const T* p, const T* m, const T* v, const LAMBNumbers<T>& k, F f) {
  T u[kTile];
  for (int64_t at = 0; at < n; at += kTile) {
    const int64_t count = std::min(kTile, n - at);
    lamb_directions<T>(count, u, p + at, m + at, v + at, k);
    f(u, at, count);
  }
}

void lamb_step_cpu(const Tensor& some, const std::vector<StepItem>& items, const LAMBStep& o) {
  dispatch_stored(some.dtype(), "lamb_step", [&]<class P, class T>() {
    const std::vector<Norms> norms = norms_of(items, [&](const StepItem& item, int64_t begin, int64_t end,
                                                         Squares& of_param, Squares& of_direction) {
      const auto k = lamb_numbers<T>(o, item.step);
      T *m = item.state[0].ptr<T>() + begin, *v = item.state[1].ptr<T>() + begin;
      in_tiles<P, T>(item.param.ptr<P>() + begin, item.grad.ptr<P>() + begin, end - begin,
                     [&](const T* p, const T* g, int64_t at, int64_t n) {
                       lamb_moments<T>(n, g, m + at, v + at, k);
                       of_param.add(p, n);
                       lamb_tiles<T>(n, p, m + at, v + at, k,
                                     [&](const T* u, int64_t, int64_t count) { of_direction.add(u, count); });
                     });
    });
    over_items(items, [&](const StepItem& item, int64_t begin, int64_t end) {
      const auto k = lamb_numbers<T>(o, item.step);
      auto [param, direction] = norms[static_cast<size_t>(&item - items.data())];
      if (o.max_norm > 0) param = std::min(param, o.max_norm);
      const T rate = T(o.lr * (param > 0 && direction > 0 ? param / direction : 1.0));
      const T *m = item.state[0].ptr<T>() + begin, *v = item.state[1].ptr<T>() + begin;
      in_tiles<P, T>(item.param.ptr<P>() + begin, item.grad.ptr<P>() + begin, end - begin,
                     [&](T* p, const T*, int64_t at, int64_t n) {
                       lamb_tiles<T>(n, p, m + at, v + at, k, [&](const T* u, int64_t from, int64_t count) {
                         for (int64_t i = 0; i < count; ++i) p[from + i] -= rate * u[i];
                       });
                     });
    });
  });
}

template <class T>
void lars(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict b, T momentum, T rate, T sign,
          T decay) {
  for (int64_t i = 0; i < n; ++i) {
    b[i] = momentum * b[i] + rate * (sign * g[i] + decay * p[i]);
    p[i] -= b[i];
  }
}

void lars_step_cpu(const Tensor& some, const std::vector<StepItem>& items, const LARSStep& o) {
  dispatch_stored(some.dtype(), "lars_step", [&]<class P, class T>() {
    const std::vector<Norms> norms = norms_of(
        items, [&](const StepItem& item, int64_t begin, int64_t end, Squares& of_param, Squares& of_grad) {
          of_param.add(item.param.ptr<P>() + begin, end - begin);
          of_grad.add(item.grad.ptr<P>() + begin, end - begin);
        });
    over_items(items, [&](const StepItem& item, int64_t begin, int64_t end) {
      const auto [param, grad] = norms[static_cast<size_t>(&item - items.data())];
      const double ratio =
          param > 0 && grad > 0 ? o.trust * param / (grad + o.weight_decay * param + o.eps) : 1.0;
      T* b = item.state[0].ptr<T>() + begin;
      in_tiles<P, T>(item.param.ptr<P>() + begin, item.grad.ptr<P>() + begin, end - begin,
                     [&](T* p, const T* g, int64_t at, int64_t n) {
                       lars<T>(n, p, g, b + at, T(o.momentum), T(o.lr * ratio), o.maximize ? T(-1) : T(1),
                               T(o.weight_decay));
                     });
    });
  });
}

}  // namespace

constinit decltype(norm_of_kernel) norm_of_kernel{"norm_of", &norm_of_cpu};
constinit decltype(clip_by_norm_kernel) clip_by_norm_kernel{"clip_by_norm_", &clip_by_norm_cpu};
constinit decltype(clip_by_value_kernel) clip_by_value_kernel{"clip_by_value_", &clip_by_value_cpu};
constinit decltype(unscale_kernel) unscale_kernel{"unscale_", &unscale_cpu};
constinit StepSlot<LAMBStep> lamb_step_kernel{"lamb_step", &lamb_step_cpu};
constinit StepSlot<LARSStep> lars_step_kernel{"lars_step", &lars_step_cpu};

}  // namespace gradus::raw
