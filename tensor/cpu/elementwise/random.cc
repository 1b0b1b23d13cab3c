// CPU kernels of random numbers: uniform, normal, bernoulli, dropout, randint, randperm and multinomial.
// Numbers are counter-based (Philox): an element depends on the key (seed, number of the draw) and its index,
// never on the number of threads. Formulas shared with the GPU are in tensor/ops/formulas. Callers have
// checked arguments and pass tensors that are not empty; shapes and dtypes are in tensor/ops/random.h.
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/kernel.h"

#include <algorithm>
#include <vector>

#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/cpu/elementwise/dropout_bits.h"
#include "gradus/tensor/cpu/elementwise/elementwise.h"
#include "gradus/tensor/cpu/elementwise/philox.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/formulas/multinomial.h"
#include "gradus/tensor/ops/formulas/random.h"
#include "gradus/tensor/ops/value_errors.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::cpu {
namespace {

// Returns the key of a draw, with the two numbers of its `base` added.
PhiloxKey absolute(const raw::DrawKey& key) {
  if (!key.base.defined()) return key.philox;
  const int64_t* const base = key.base.ptr<int64_t>();
  return {key.philox.seed + uint64_t(base[0]), key.philox.stream + uint64_t(base[1])};
}

// Fills `out` with random elements. The element at row-major index i follows from key and i alone (Note [Draws] in
// tensor/ops/random.h), for any layout and dtype of `out`. `draw` (draws::Uniform, ...) converts the 32-bit words
// of kPhiloxCounters counters to kElements elements; a block of the loop is one such conversion.
template <class Draw> void fill(const Tensor& out, PhiloxKey key, const Draw& draw) {
  using T = typename Draw::Element;
  if (!out.is_row_major() || out.dtype() != dtype_v<T>) {
    const Tensor values = empty(out.shape(), {dtype_v<T>, out.device()});
    fill(values, key, draw);
    raw::copy_kernel.cpu(out, values);
    return;
  }
  constexpr int kElements = kPhiloxCounters * draws::kPerCounter<Draw>;
  T* const to = out.ptr<T>();
  const int64_t n = out.numel(), blocks = (n + kElements - 1) / kElements;
  parallel_for(0, blocks, 16384 / kElements, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBatch = 8;
    alignas(32) uint32_t batch[kBatch * kPhiloxWords];
    for (int64_t b = begin; b < end; ++b) {
      const int64_t i = (b - begin) % kBatch;
      if (i == 0) philox_words(key, uint64_t(b) * kPhiloxCounters, std::min(kBatch, end - b), batch);
      const uint32_t* words = batch + i * kPhiloxWords;
      const int64_t at = b * kElements;
      if (n - at >= kElements) {
        draws::make_elements<kPhiloxCounters>(draw, words, to + at);
      } else {
        T values[kElements];
        draws::make_elements<kPhiloxCounters>(draw, words, values);
        std::copy_n(values, n - at, to + at);
      }
    }
  });
}

// Calls f.operator()<T>() with the type in which out's elements are drawn: double for f64, else float.
template <class F> void with_draw_type(const Tensor& out, F&& f) {
  out.dtype() == DType::kF64 ? f.template operator()<double>() : f.template operator()<float>();
}

void uniform_cpu(const Tensor& out, double low, double high, const raw::DrawKey& key) {
  with_draw_type(out, [&]<class T>() { fill(out, absolute(key), draws::Uniform<T>(low, high)); });
}
void normal_cpu(const Tensor& out, double mean, double std, const raw::DrawKey& key) {
  with_draw_type(out, [&]<class T>() { fill(out, absolute(key), draws::Normal<T>(mean, std)); });
}
void bernoulli_cpu(const Tensor& out, double p, const raw::DrawKey& key) {
  fill(out, absolute(key), draws::Bernoulli(p));
}
void dropout_mask_cpu(const Tensor& out, double p, const raw::DrawKey& key) {
  fill(out, absolute(key), draws::DropoutMask(p));
}
void randint_cpu(const Tensor& out, int64_t low, uint64_t range, const raw::DrawKey& key) {
  fill(out, absolute(key), draws::Integers{low, range});
}

// Fisher-Yates shuffle: element i is swapped with a random one of elements [i, n).
void randperm_cpu(const Tensor& out, const raw::DrawKey& key) {
  int64_t* const order = out.ptr<int64_t>();
  const int64_t n = out.numel();
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  uint32_t words[kPhiloxWords];
  const PhiloxKey philox = absolute(key);
  for (int64_t i = 0; i + 1 < n; ++i) {
    constexpr int kElements = kPhiloxWords / 2;
    if (i % kElements == 0) philox_words(philox, uint64_t(i / kElements) * kPhiloxCounters, 1, words);
    std::swap(order[i], order[draws::partner_of(i, n, words + 2 * (i % kElements))]);
  }
}

// Throws the error for the first invalid weight, or else for the total.
[[noreturn]] void throw_invalid_weights(const double* weights, int64_t n, double total) {
  for (int64_t i = 0; i < n; ++i)
    if (!draws::is_valid_weight(weights[i])) raw::throw_invalid_weight(weights[i], i);
  raw::throw_invalid_total(total);
}

// sums[i] = weights[0] + ... + weights[i], added in the order of Note [Order of running sums] in
// tensor/ops/formulas/multinomial.h.
// Errors: ValueError if a weight is negative or NaN, if the total is not positive and finite, or if fewer
// weights are positive than are drawn without replacement.
void accumulate_weights(const double* weights, int64_t n, int64_t count, bool replacement, double* sums) {
  double chunks = 0, groups = 0;
  int64_t positive = 0;
  for (int64_t first = 0; first < n; first += draws::kGroupWeights) {
    if (first % draws::kChunkWeights == 0) chunks += groups, groups = 0;
    double group = 0;
    for (int64_t i = first; i < std::min(n, first + draws::kGroupWeights); ++i) {
      if (!(weights[i] >= 0)) throw_invalid_weights(weights, n, 0);
      positive += weights[i] > 0;
      group += weights[i];
      sums[i] = chunks + (groups + group);
    }
    groups += group;
  }
  // An infinite weight makes the total infinite.
  if (!draws::is_valid_total(sums[n - 1])) throw_invalid_weights(weights, n, sums[n - 1]);
  if (!replacement && positive < count) raw::throw_too_few_weights(count, positive);
}

// Draws `count` indices per row with probabilities proportional to weights [rows, n]. With replacement:
// inverts the cumulative distribution at each uniform number. Without replacement: gives each index an
// exponential arrival time with its weight as the rate, and takes the `count` earliest. Rows run in parallel.
// Shapes: out [rows, count]; weights f64 [rows, n]; uniform f64, with replacement like out, else like weights.
void multinomial_cpu(const Tensor& out, const Tensor& weights, const Tensor& uniform, bool replacement) {
  const int64_t n = weights.shape().back(), rows = weights.numel() / n, count = out.numel() / rows;
  parallel_for(0, rows, std::max<int64_t>(1, 4096 / n), [&](int64_t begin, int64_t end) {
    std::vector<double> sums(n);
    std::vector<int64_t> order(replacement ? 0 : n);
    for (int64_t row = begin; row < end; ++row) {
      const double* const w = weights.ptr<double>() + row * n;
      const double* const u = uniform.ptr<double>() + row * (replacement ? count : n);
      int64_t* const to = out.ptr<int64_t>() + row * count;
      accumulate_weights(w, n, count, replacement, sums.data());
      if (replacement) {
        const double total = sums.back(), below = draws::previous_double(total);
        for (int64_t i = 0; i < count; ++i)
          to[i] =
              std::upper_bound(sums.begin(), sums.end(), draws::threshold(u[i], total, below)) - sums.begin();
        continue;
      }
      for (int64_t i = 0; i < n; ++i) {
        order[i] = i;
        sums[i] = draws::arrival_time(u[i], w[i]);
      }
      std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) {
        return sums[a] < sums[b] || (sums[a] == sums[b] && a < b);
      });
      std::copy_n(order.begin(), count, to);
    }
  });
}

// out = mask ? scale * x : 0.
void masked_scale_cpu(const Tensor& out, const Tensor& x, const Tensor& mask, double scale) {
  const functors::MaskedScale f{{}, scale};
  raw::with_compute_type<functors::MaskedScale>("masked_scale", out.dtype(), [&]<class T>() {
    const Tensor* in[] = {&x, &mask};
    run_elementwise({&elementwise_chunk<functors::MaskedScale, T, T, uint8_t>,
                     &f,
                     dtype_v<T>,
                     {dtype_v<T>, DType::kBool}},
                    out, in);
  });
}

void dropout_cpu(const Tensor& y, const Tensor& mask, const Tensor& x, double p, double scale,
                 const raw::DrawKey& key) {
  dropout_mask_cpu(mask, p, key);
  masked_scale_cpu(y, x, mask, scale);
}

// out[i] = out[i] < p[i] ? 1 : 0, which turns uniform numbers into Bernoulli samples; both row-major.
// Errors: ValueError if a probability is not in [0, 1].
void below_cpu(const Tensor& out, const Tensor& p) {
  with_draw_type(out, [&]<class T>() {
    parallel_for(0, out.numel(), 16384, [u = out.ptr<T>(), p = p.ptr<T>()](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (!(p[i] >= 0 && p[i] <= 1)) raw::throw_invalid_probability(static_cast<double>(p[i]), i);
        u[i] = u[i] < p[i] ? T(1) : T(0);
      }
    });
  });
}

}  // namespace

void dropout_bits(const raw::DrawKey& key, double p, int64_t first, int64_t n, bool* keep) {
  using draws::DropoutMask;
  constexpr int kPerCounter = draws::kPerCounter<DropoutMask>, kElements = kPhiloxCounters * kPerCounter;
  const DropoutMask draw(p);
  const PhiloxKey philox = absolute(key);
  uint32_t words[kPhiloxWords];
  bool block[kElements];
  int64_t skip = first % kPerCounter;  // elements of the first counter before `first`
  for (int64_t counter = first / kPerCounter, done = 0; done < n; counter += kPhiloxCounters, skip = 0) {
    philox_words(philox, uint64_t(counter), 1, words);
    draws::make_elements<kPhiloxCounters>(draw, words, block);
    const int64_t count = std::min(kElements - skip, n - done);
    std::copy_n(block + skip, count, keep + done);
    done += count;
  }
}

}  // namespace gradus::cpu

namespace gradus::raw {
using namespace cpu;  // NOLINT

constinit decltype(bernoulli_from_uniform_kernel) bernoulli_from_uniform_kernel{"bernoulli", &below_cpu};
constinit decltype(uniform_kernel) uniform_kernel{"uniform_", &uniform_cpu};
constinit decltype(normal_kernel) normal_kernel{"normal_", &normal_cpu};
constinit decltype(bernoulli_kernel) bernoulli_kernel{"bernoulli", &bernoulli_cpu};
constinit decltype(dropout_mask_kernel) dropout_mask_kernel{"dropout", &dropout_mask_cpu};
constinit decltype(randint_kernel) randint_kernel{"randint", &randint_cpu};
constinit decltype(randperm_kernel) randperm_kernel{"randperm", &randperm_cpu};
constinit decltype(multinomial_kernel) multinomial_kernel{"multinomial", &multinomial_cpu};
constinit decltype(masked_scale_kernel) masked_scale_kernel{"masked_scale", &masked_scale_cpu};
constinit decltype(dropout_kernel) dropout_kernel{"dropout", &dropout_cpu};

}  // namespace gradus::raw
