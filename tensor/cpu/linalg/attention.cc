// CPU kernels of scaled dot-product attention and of its gradients in f32, which never store the matrix of
// weights. Per matrix of the batch, with q [L,E], k [S,E], v [S,V]:
//   scores = scale q k^T + mask,  max[l] = max_s scores[l,s],  total[l] = sum_s exp(scores[l,s] - max[l])
//   w = exp(scores - max) / total
//   y = c (keep w) v, with a dropout mask `keep` and c = 1 / (1 - p)
//   dv = c (keep w)^T dy,  dw = c keep (dy v^T),  dscores = w (dw - sum_v dy y)
//   dq = scale dscores k,  dk = scale dscores^T q
// The forward computes the scores of kQueries queries to all keys, their softmax, and the product with v. The
// backward computes w again, in tiles of kQueries x kKeys. Threads divide blocks of queries in the forward, and
// groups of keys in the backward. The blocks, groups and orders of summation depend on shapes alone.
// Sources: Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022;
// Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023.
#include "gradus/tensor/ops/linalg/attention.h"
#include "gradus/tensor/kernel.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/linalg/attention.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/elementwise/dropout_bits.h"
#include "gradus/tensor/cpu/product_blocks-inl.h"
#include "gradus/tensor/runtime/flush_denormal.h"
#include "gradus/tensor/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kQueries = 64, kKeys = 64;  // sizes of a tile of scores
constexpr float kMasked = -std::numeric_limits<float>::infinity();

// e^x for x <= 0, and 0 for x < -87. NaN stays NaN.
// Source: coefficients of Cephes' expf (S. Moshier).
HWY_INLINE Floats exp(Floats x) {
  const hn::RebindToSigned<FloatTag> ints;
  const auto c = [](float v) HWY_ATTR { return hn::Set(kFloats, v); };
  const Floats shifted = hn::MulAdd(x, c(1.44269504f), c(12582912.f)), n = shifted - c(12582912.f);
  const Floats r = hn::NegMulAdd(n, c(-2.12194440e-4f), hn::NegMulAdd(n, c(0.693359375f), x));
  Floats p = hn::MulAdd(c(1.9875691500e-4f), r, c(1.3981999507e-3f));
  for (float coefficient : {8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = hn::MulAdd(p, r, c(coefficient));
  p = hn::MulAdd(p, r * r, r) + c(1.f);
  // The low bits of `shifted` are those of the integer n.
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(ints, shifted) + hn::Set(ints, 127));
  return hn::IfThenZeroElse(x < c(-87.f), p * hn::BitCast(kFloats, exponent));
}

// Returns the lanes where m[0, kLanes) is true.
HWY_INLINE hn::Mask<FloatTag> lanes_of(const bool* m) {
  const hn::RebindToSigned<FloatTag> ints;
  const hn::Rebind<uint8_t, FloatTag> bytes;
  const auto words = hn::PromoteTo(ints, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(m)));
  return hn::RebindMask(kFloats, words != hn::Zero(ints));
}

// The operands of a call and its sizes.
struct Problem {
  Problem(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
          const raw::AttentionSpec& spec)
      : q(q), k(k), v(v), mask(mask), spec(spec), keep_scale(spec.dropout < 1 ? 1 / (1 - spec.dropout) : 0) {
    for (int d = 0; d < q.dim() - 2; ++d) matrices *= q.size(d);
  }
  // Returns the first element of matrix g of x [...,rows,columns].
  template <class T = float> static T* matrix(const Tensor& x, int64_t g) {
    T* p = x.ptr<T>();
    for (int d = x.dim() - 3; d >= 0; g /= x.size(d--)) p += g % x.size(d) * x.stride(d);
    return p;
  }
  // Returns the number of keys that query l may see if `mask` permits.
  int64_t keys_of(int64_t l) const { return spec.causal ? std::min(S, l + 1) : S; }

  // Masks the scores of query l of matrix g to keys [first, first + n).
  void add_mask(float* scores, int64_t g, int64_t l, int64_t first, int64_t n) const {
    if (!mask.defined()) return;
    const int64_t at = l * mask.stride(-2) + first;
    int64_t j = 0;
    if (mask.dtype() == DType::kBool) {
      const bool* m = matrix<bool>(mask, g) + at;
      for (; j + kLanes <= n; j += kLanes)
        store(scores + j, hn::IfThenElse(lanes_of(m + j), load(scores + j), hn::Set(kFloats, kMasked)));
      for (; j < n; ++j) scores[j] = m[j] ? scores[j] : kMasked;
    } else {
      const float* m = matrix(mask, g) + at;
      for (; j + kLanes <= n; j += kLanes) store(scores + j, load(scores + j) + load(m + j));
      for (; j < n; ++j) scores[j] += m[j];
    }
  }

  // Writes the elements of the dropout mask of query l of matrix g for keys [first, first + n).
  void draw(int64_t g, int64_t l, int64_t first, int64_t n, bool* keep) const {
    dropout_bits(spec.draw, 1 - spec.dropout, (g * L + l) * S + first, n, keep);
  }

  const Tensor &q, &k, &v, &mask;
  const raw::AttentionSpec& spec;
  const float scale = float(spec.scale), keep_scale;
  const int64_t L = q.size(-2), E = q.size(-1), S = k.size(-2), V = v.size(-1);
  int64_t matrices = 1;
};

// Memory of a thread, divided into arrays.
class Workspace {
 public:
  explicit Workspace(int64_t floats) : memory_(scratch(floats)), next_(memory_.ptr<float>()) {}
  float* take(int64_t floats) { return std::exchange(next_, next_ + floats); }

 private:
  Tensor memory_;
  float* next_;
};

// Replaces scores[0, n) by exp(scores - max) and the rest of scores[0, width) by 0. Returns max and the sum.
std::pair<float, float> exp_row(float* scores, int64_t n, int64_t width) {
  const int64_t end = ceil_div(n, kLanes) * kLanes;
  std::fill(scores + n, scores + end, kMasked);
  std::fill(scores + end, scores + width, 0.f);
  Floats max = load(scores), sum = hn::Zero(kFloats);
  for (int64_t j = kLanes; j < end; j += kLanes) max = hn::Max(max, load(scores + j));
  max = hn::MaxOfLanes(kFloats, max);
  for (int64_t j = 0; j < end; j += kLanes) {
    const Floats w = exp(load(scores + j) - max);
    sum = sum + w;
    store(scores + j, w);
  }
  return {hn::GetLane(max), hn::GetLane(hn::SumOfLanes(kFloats, sum))};
}

float dot(const float* a, const float* b, int64_t n) {
  Floats lanes = hn::Zero(kFloats);
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) lanes = hn::MulAdd(load(a + j), load(b + j), lanes);
  float sum = hn::GetLane(hn::SumOfLanes(kFloats, lanes));
  for (; j < n; ++j) sum += a[j] * b[j];
  return sum;
}

class Forward {
 public:
  Forward(const Problem& p, const Tensor& y, const Tensor& softmax_stats)
      : p(p),
        y(y),
        softmax_stats(softmax_stats.ptr<float>()),
        row(padded(p.S) + kLanes),  // rows of a power of two would share cache sets
        work(padded(p.S) * p.E + p.S * padded(p.V) + kQueries * (padded(p.E) + padded(p.V) + row)) {}

  // Computes queries [first, first + rows) of matrix g.
  void compute(int64_t g, int64_t first, int64_t rows) {
    if (g != loaded) {
      loaded = g;
      copy_transposed(p.matrix(p.k, g), p.k.stride(-2), p.S, p.E, keys);
      copy_rows(p.matrix(p.v, g), p.v.stride(-2), p.S, p.V, 1, values, padded(p.V));
    }
    copy_rows(p.matrix(p.q, g) + first * p.q.stride(-2), p.q.stride(-2), rows, p.E, p.scale, queries, p.E);
    const int64_t S = p.keys_of(first + rows - 1);
    multiply_panels({queries, p.E, 1}, rows, keys, kPanel, p.E * kPanel, p.E, scores, row, padded(S), false);
    float scales[kQueries];
    for (int64_t r = 0; r < rows; ++r) scales[r] = p.keep_scale / weigh(g, first + r, scores + r * row, S);
    for (int64_t s = 0; s < S; s += kKeys)
      multiply_panels({scores + s, row, 1}, rows, values + s * padded(p.V), padded(p.V), kPanel,
                      std::min(kKeys, S - s), sums, padded(p.V), padded(p.V), s > 0);
    float* const to = p.matrix(y, g) + first * y.stride(-2);
    for (int64_t r = 0; r < rows; ++r)
      copy_rows(sums + r * padded(p.V), 0, 1, p.V, scales[r], to + r * y.stride(-2), 0, false);
  }

 private:
  // Replaces the scores of query l to S keys by weights, up to the factor that is returned. Stores the query's
  // max and total.
  float weigh(int64_t g, int64_t l, float* weights, int64_t S) {
    const int64_t n = p.keys_of(l);
    p.add_mask(weights, g, l, 0, n);
    const auto [max, total] = exp_row(weights, n, padded(S));
    softmax_stats[2 * (g * p.L + l)] = max, softmax_stats[2 * (g * p.L + l) + 1] = total;
    if (p.spec.dropout > 0) {
      p.draw(g, l, 0, n, keep.get());
      for (int64_t j = 0; j < n; j += kLanes)
        store(weights + j, hn::IfThenElseZero(lanes_of(keep.get() + j), load(weights + j)));
    }
    return total;
  }

  const Problem& p;
  const Tensor& y;
  float* const softmax_stats;
  const int64_t row;
  Workspace work;
  float* const keys = work.take(padded(p.S) * p.E);          // k transposed, in panels
  float* const values = work.take(p.S * padded(p.V));        // v
  float* const queries = work.take(kQueries * padded(p.E));  // scale q
  float* const sums = work.take(kQueries * padded(p.V));
  float* const scores = work.take(kQueries * row);
  const std::unique_ptr<bool[]> keep{new bool[size_t(padded(p.S))]()};
  int64_t loaded = -1;  // the matrix whose keys and values these are
};

class Backward {
 public:
  Backward(const Problem& p, const Tensor& dk, const Tensor& dv, const Tensor& dy, const Tensor& y,
           const Tensor& softmax_stats)
      : p(p),
        dk_out(dk),
        dv_out(dv),
        dy(dy),
        y(y),
        softmax_stats(softmax_stats.ptr<float>()),
        work(p.L * (2 * Ep + Vp + 1) + 2 * kKeys * (Ep + Vp) + kKeys * Ep + 2 * kQueries * kRow) {}

  // Computes dk and dv of keys [begin, end) of matrix g, and the part of dq [L,E] that these keys contribute, whose rows
  // are dq_row apart.
  void compute(int64_t g, int64_t begin, int64_t end, float* dq_part, int64_t dq_row) {
    load_queries(g);
    std::fill_n(dq, p.L * Ep, 0.f);
    for (int64_t key = begin; key < end; key += kKeys) {
      const int64_t n = std::min(kKeys, end - key);
      const float* const k = p.matrix(p.k, g) + key * p.k.stride(-2);
      copy_rows(k, p.k.stride(-2), n, p.E, p.scale, keys, Ep);
      copy_transposed(k, p.k.stride(-2), n, p.E, keys_transposed);
      copy_transposed(p.matrix(p.v, g) + key * p.v.stride(-2), p.v.stride(-2), n, p.V, values_transposed);
      std::fill_n(dk, n * Ep, 0.f);
      std::fill_n(dv, n * Vp, 0.f);
      for (int64_t l = p.spec.causal ? key / kQueries * kQueries : 0; l < p.L; l += kQueries)
        add_tile(g, l, std::min(kQueries, p.L - l), key, n);
      const int64_t dk_row = dk_out.stride(-2), dv_row = dv_out.stride(-2);
      copy_rows(dk, Ep, n, p.E, 1, p.matrix(dk_out, g) + key * dk_row, dk_row, false);
      copy_rows(dv, Vp, n, p.V, p.keep_scale, p.matrix(dv_out, g) + key * dv_row, dv_row, false);
    }
    copy_rows(dq, Ep, p.L, p.E, 1, dq_part, dq_row, false);
  }

 private:
  static constexpr int64_t kRow = kKeys + kLanes;  // rows of a power of two would share cache sets

  // Reads the queries, dy, and for each query the sum of dy y.
  void load_queries(int64_t g) {
    if (g == std::exchange(loaded, g)) return;
    copy_rows(p.matrix(p.q, g), p.q.stride(-2), p.L, p.E, p.scale, queries, Ep);
    copy_rows(p.matrix(dy, g), dy.stride(-2), p.L, p.V, 1, dys, Vp);
    for (int64_t l = 0; l < p.L; ++l) dy_y[l] = dot(dys + l * Vp, p.matrix(y, g) + l * y.stride(-2), p.V);
  }

  // Adds to dk, dv and dq what `rows` queries from l on and n keys from `key` on contribute.
  void add_tile(int64_t g, int64_t l, int64_t rows, int64_t key, int64_t n) {
    const float *const q = queries + l * Ep, *const d = dys + l * Vp;
    multiply_panels({q, Ep, 1}, rows, keys_transposed, kPanel, p.E * kPanel, p.E, weights, kRow, padded(n),
                    false);
    multiply_panels({d, Vp, 1}, rows, values_transposed, kPanel, p.V * kPanel, p.V, dscores, kRow, padded(n),
                    false);
    for (int64_t r = 0; r < rows; ++r)
      differentiate(g, l + r, key, n, weights + r * kRow, dscores + r * kRow);
    multiply_panels({weights, 1, kRow}, n, d, Vp, kPanel, rows, dv, Vp, Vp, true);
    multiply_panels({dscores, 1, kRow}, n, q, Ep, kPanel, rows, dk, Ep, Ep, true);
    multiply_panels({dscores, kRow, 1}, rows, keys, Ep, kPanel, n, dq + l * Ep, Ep, Ep, true);
  }

  // Takes the scores w of query l and n keys from `key` on, and d = dy v^T. Replaces w by keep w, without keep_scale,
  // and d by dscores.
  void differentiate(int64_t g, int64_t l, int64_t key, int64_t n, float* w, float* d) {
    const int64_t visible = std::clamp<int64_t>(p.keys_of(l) - key, 0, n);
    p.add_mask(w, g, l, key, visible);
    std::fill(w + visible, w + padded(n), kMasked);
    const bool drops = p.spec.dropout > 0;
    if (drops) p.draw(g, l, key, visible, keep);
    const float* const stats = softmax_stats + 2 * (g * p.L + l);
    const Floats max = hn::Set(kFloats, stats[0]), inverse = hn::Set(kFloats, 1 / stats[1]),
                 sum_dy_y = hn::Set(kFloats, dy_y[l]), scale = hn::Set(kFloats, p.keep_scale),
                 masked = hn::Set(kFloats, kMasked);
    for (int64_t j = 0; j < padded(n); j += kLanes) {
      const Floats score = load(w + j), weight = exp(score - max) * inverse;
      Floats kept = weight, dw = load(d + j);
      if (drops) {
        const auto lanes = lanes_of(keep + j);
        kept = hn::IfThenElseZero(lanes, weight), dw = hn::IfThenElseZero(lanes, dw * scale);
      }
      store(w + j, kept);
      store(d + j, hn::IfThenZeroElse(score == masked, weight * (dw - sum_dy_y)));
    }
  }

  const Problem& p;
  const Tensor &dk_out, &dv_out, &dy, &y;
  const float* const softmax_stats;
  const int64_t Ep = padded(p.E), Vp = padded(p.V);
  Workspace work;
  float *const queries = work.take(p.L * Ep), *const dys = work.take(p.L * Vp);  // scale q, dy
  float* const dq = work.take(p.L * Ep);
  float* const keys = work.take(kKeys * Ep);
  float *const keys_transposed = work.take(kKeys * p.E), *const values_transposed = work.take(kKeys * p.V);
  float *const dk = work.take(kKeys * Ep), *const dv = work.take(kKeys * Vp);
  float *const weights = work.take(kQueries * kRow), *const dscores = work.take(kQueries * kRow);
  float* const dy_y = work.take(p.L);
  bool keep[kKeys] = {};
  int64_t loaded = -1;  // the matrix whose queries these are
};

constexpr int64_t kGrain = 1 << 18;  // minimum number of multiplications per thread

void forward(const Tensor& y, const Tensor& softmax_stats, const Tensor& q, const Tensor& k, const Tensor& v,
             const Tensor& mask, const raw::AttentionSpec& spec) {
  const Problem p(q, k, v, mask, spec);
  const int64_t blocks = ceil_div(p.L, kQueries), grain = 1 + kGrain / (kQueries * p.S * (p.E + p.V));
  parallel_for(0, p.matrices * blocks, grain, [&](int64_t begin, int64_t end) {
    Forward worker(p, y, softmax_stats);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t l = i % blocks * kQueries;
      worker.compute(i / blocks, l, std::min(kQueries, p.L - l));
    }
  });
}

// Threads divide the keys. If there are few matrices, the keys of each form several groups, and each group has a
// partial sum of dq.
void backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dy, const Tensor& y,
              const Tensor& softmax_stats, const Tensor& q, const Tensor& k, const Tensor& v,
              const Tensor& mask, const raw::AttentionSpec& spec) {
  constexpr int64_t kGroups = 16;  // of all matrices together, if there are enough keys
  const Problem p(q, k, v, mask, spec);
  const int64_t blocks = ceil_div(p.S, kKeys), groups = std::clamp<int64_t>(kGroups / p.matrices, 1, blocks);
  const int64_t part = p.L * p.E;
  const Tensor parts = groups == 1 ? Tensor() : scratch(p.matrices * groups * part);
  const int64_t grain = 1 + kGrain * groups / (p.L * p.S * (p.E + p.V));
  parallel_for(0, p.matrices * groups, grain, [&](int64_t begin, int64_t end) {
    Backward worker(p, dk, dv, dy, y, softmax_stats);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = i % groups;
      const int64_t first = blocks * group / groups * kKeys,
                    last = std::min(p.S, blocks * (group + 1) / groups * kKeys);
      if (groups == 1)
        worker.compute(i, first, last, p.matrix(dq, i), dq.stride(-2));
      else
        worker.compute(i / groups, first, last, parts.ptr<float>() + i * part, p.E);
    }
  });
  if (groups == 1) return;
  parallel_for(0, p.matrices * p.L, 1 + kGrain / (p.E * groups + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* const first = parts.ptr<float>() + i / p.L * groups * part + i % p.L * p.E;
      float* const sum = p.matrix(dq, i / p.L) + i % p.L * dq.stride(-2);
      std::copy_n(first, p.E, sum);
      for (int64_t group = 1; group < groups; ++group)
        for (int64_t j = 0; j < p.E; ++j) sum[j] += first[group * part + j];
    }
  });
}

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradus {
namespace {

void attention_cpu(const Tensor& y, const Tensor& softmax_stats, const Tensor& q, const Tensor& k,
                   const Tensor& v, const Tensor& mask, const raw::AttentionSpec& spec) {
  GRADUS_DISPATCH(forward)(y, softmax_stats, q, k, v, mask, spec);
}
void attention_backward_cpu(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dy,
                            const Tensor& y, const Tensor& softmax_stats, const Tensor& q, const Tensor& k,
                            const Tensor& v, const Tensor& mask, const raw::AttentionSpec& spec) {
  GRADUS_DISPATCH(backward)(dq, dk, dv, dy, y, softmax_stats, q, k, v, mask, spec);
}

}  // namespace

constinit decltype(raw::attention_kernel) raw::attention_kernel{"attention", cpu::flushing<&attention_cpu>};
constinit decltype(raw::attention_backward_kernel) raw::attention_backward_kernel{
    "attention_backward", cpu::flushing<&attention_backward_cpu>};

}  // namespace gradus
#endif
