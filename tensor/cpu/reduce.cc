// CPU kernels of sum, var, prod, amax, amin, any, all and norm. Each is an Op, a struct of identity,
// accumulate, combine and finish, that reduce<T, Result> of gradus/tensor/cpu/reduce_loops.h runs over the
// dims in which `out` has size 1; x may be strided. Callers have checked shapes, dtypes and devices. Sums of
// floats are accumulated in f32 within blocks of at most 16 elements per SIMD lane, and in f64 across blocks.
// The order, and so the result, does not depend on the number of threads. out has x's dtype;
// sums of integers and bools are i64, without `scale`.
#include <cmath>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/reduce.h"

#include "gradus/tensor/cpu/reduce_loops.h"
#include "gradus/tensor/cpu/reduce_types.h"

namespace gradus::raw {
namespace {

using namespace cpu;

// Op: the product of all elements.
template <class T> struct Prod {
  using BlockAccumulator = AccumulatorOf<T>;  // f64: a product of a few f32 values may overflow f32
  using Accumulator = AccumulatorOf<T>;
  BlockAccumulator identity() const { return 1; }
  BlockAccumulator accumulate(BlockAccumulator a, T x) const { return a * static_cast<BlockAccumulator>(x); }
  Accumulator combine(Accumulator a, Accumulator b) const { return a * b; }
  Accumulator finish(Accumulator a) const { return a; }
};

// Op on bools stored as bytes 0 and 1: any() is the largest element, all() the smallest.
template <bool any> struct Logical : Extreme<uint8_t, any> {
  uint8_t finish(uint8_t a) const { return a != 0; }
};

// The exponents p of a norm that have loops of their own.
enum class Exponent { kZero, kOne, kTwo, kAny };

// Op: (scale * sum |x|^p)^(1/p), without the root if `root` is false. p = 0 counts the nonzero elements.
template <class T, Exponent exponent> struct Norm : Sum<T> {
  using BlockAccumulator = BlockAccumulatorOf<T>;
  double p = 2;
  bool root = true;
  BlockAccumulator accumulate(BlockAccumulator a, T x) const {
    const BlockAccumulator v = static_cast<BlockAccumulator>(x);
    if constexpr (exponent == Exponent::kZero) return a + (v != 0);
    if constexpr (exponent == Exponent::kOne) return a + std::abs(v);
    if constexpr (exponent == Exponent::kTwo) return a + v * v;
    return a + std::pow(std::abs(v), static_cast<BlockAccumulator>(p));
  }
  double finish(double a) const {
    a *= this->scale;
    if (!root || exponent == Exponent::kZero || exponent == Exponent::kOne) return a;
    return exponent == Exponent::kTwo ? std::sqrt(a) : std::pow(a, 1 / p);
  }
};

// Op: the largest or smallest |x|.
template <class T, bool largest> struct ExtremeAbs : Extreme<T, largest> {
  using BlockAccumulator = typename Extreme<T, largest>::BlockAccumulator;
  BlockAccumulator accumulate(BlockAccumulator a, T x) const {
    return this->join(a, std::abs(static_cast<BlockAccumulator>(x)));
  }
};

// The number of elements n, their mean, and squares = sum (x - mean)^2 (usually called M2), merged across
// blocks in f64.
struct Moments {
  double n = 0, mean = 0, squares = 0;
};
// Op: scale * sum (x - mean)^2, or its square root, in one pass over memory. A block fits into the
// first-level cache and is read three times: for its mean, then for the squared deviations. Blocks a and b
// are merged with delta = mean_b - mean_a:
//   M2 = M2_a + M2_b + delta^2 * n_a * n_b / (n_a + n_b)
// Source: Chan et al., Updating Formulae and a Pairwise Algorithm for Computing Sample Variances.
template <class T> struct Variance {
  using BlockAccumulator = Moments;
  using Accumulator = Moments;
  double scale = 1;
  bool root = false;
  Moments identity() const { return {}; }
  Moments combine(const Moments& a, const Moments& b) const {
    const double n = a.n + b.n, delta = b.mean - a.mean;
    if (n == 0) return a;
    const double weight = b.n / n;
    return {n, a.mean + delta * weight, a.squares + b.squares + delta * delta * (a.n * weight)};
  }
  double finish(const Moments& a) const { return root ? std::sqrt(a.squares * scale) : a.squares * scale; }

  // Returns whether an f32 sum of squares may have overflowed, or lost precision to underflow.
  static bool out_of_range(T squares) {
    return std::is_same_v<T, float> &&
           !((squares >= 1e-30f) & (squares <= std::numeric_limits<float>::max()));
  }
  // The moments of a block, computed in f64, for values whose squares are out of f32's range.
  static Moments moments_in_f64(const T* x, int64_t n, int64_t stride) {
    double center = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) center += static_cast<double>(x[i * stride]);
    center /= static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      const double d = static_cast<double>(x[i * stride]) - center;
      squares += d * d;
    }
    return {static_cast<double>(n), center, squares};
  }

  // Returns the moments of n elements from sum = sum (x - center) and squares = sum (x - center)^2.
  static Moments moments_from_sums(T center, T sum, T squares, double n) {
    const double mean_offset = static_cast<double>(sum) / n;
    const double m2 = static_cast<double>(squares) - mean_offset * mean_offset * n;
    return {n, static_cast<double>(center) + mean_offset, m2 < 0 ? 0 : m2};
  }

  // Returns the sum of f(i) for i < n, accumulated in kLanes SIMD lanes, which are then added pairwise.
  template <class F> static T sum_in_lanes(int64_t n, F&& f) {
    T lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int j = 0; j < kLanes; ++j) lanes[j] += f(i + j);
    for (int j = 0; i + j < n; ++j) lanes[j] += f(i + j);
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    return lanes[0];
  }
  // Returns the moments of x[i * stride] for i < n. A fixed_stride other than 0 is the stride, known to the
  // compiler.
  template <int64_t fixed_stride> static Moments block_moments(const T* x, int64_t n, int64_t any_stride) {
    const int64_t stride = fixed_stride ? fixed_stride : any_stride;
    const T center = sum_in_lanes(n, [=](int64_t i) { return x[i * stride]; }) / static_cast<T>(n);
    const T sum = sum_in_lanes(n, [=](int64_t i) { return x[i * stride] - center; });
    const T squares =
        sum_in_lanes(n, [=](int64_t i) { return (x[i * stride] - center) * (x[i * stride] - center); });
    if (out_of_range(squares)) {
      int differs = squares != 0;  // equal elements have a variance of 0, not an underflow
      for (int64_t i = 1; i < n; ++i) differs |= x[i * stride] != x[0];
      if (differs) return moments_in_f64(x, n, stride);
    }
    return moments_from_sums(center, sum, squares, static_cast<double>(n));
  }
  Moments block(const T* x, int64_t n, int64_t stride) const {
    return stride == 1 ? block_moments<1>(x, n, 1) : block_moments<0>(x, n, stride);
  }

  // Merges rows[r][j * stride], r < n, into total[j] for each column j < width. All columns of a call have
  // one count.
  template <int64_t fixed_stride>
  void add_rows_of(Moments* total, const T* const* rows, int n, int64_t width, int64_t any_stride) const {
    const int64_t stride = fixed_stride ? fixed_stride : any_stride;
    T center[kTile] = {}, sum[kTile] = {}, squares[kTile] = {};
    for (int r = 0; r < n; ++r)
      for (int64_t j = 0; j < width; ++j) center[j] += rows[r][j * stride];
    for (int64_t j = 0; j < width; ++j) center[j] /= static_cast<T>(n);
    for (int r = 0; r < n; ++r)
      for (int64_t j = 0; j < width; ++j) {
        const T d = rows[r][j * stride] - center[j];
        sum[j] += d;
        squares[j] += d * d;
      }
    int any_out_of_range = 0, differs = 0;
    for (int64_t j = 0; j < width; ++j) any_out_of_range |= out_of_range(squares[j]);
    for (int r = 1; any_out_of_range && r < n; ++r)
      for (int64_t j = 0; j < width; ++j)
        differs |=
            out_of_range(squares[j]) & ((squares[j] != 0) | (rows[r][j * stride] != rows[0][j * stride]));
    if (differs) {
      T column[kBlock];
      for (int64_t j = 0; j < width; ++j) {
        for (int r = 0; r < n; ++r) column[r] = rows[r][j * stride];
        total[j] = combine(total[j], moments_in_f64(column, n, 1));
      }
      return;
    }
    // The formulas of moments_from_sums() and combine(). All columns have the same count, so the factors are
    // computed once.
    const double before = total[0].n, weight = n / (before + n), inv_n = 1.0 / n;
    for (int64_t j = 0; j < width; ++j) {
      const double mean_offset = static_cast<double>(sum[j]) * inv_n;
      const double m2 = static_cast<double>(squares[j]) - mean_offset * mean_offset * n;
      const double delta = static_cast<double>(center[j]) + mean_offset - total[j].mean;
      total[j].n = before + n;
      total[j].mean += delta * weight;
      total[j].squares += (m2 < 0 ? 0 : m2) + delta * delta * (before * weight);
    }
  }
  void add_rows(Moments* total, const T* const* rows, int n, int64_t width, int64_t stride) const {
    stride == 1 ? add_rows_of<1>(total, rows, n, width, 1) : add_rows_of<0>(total, rows, n, width, stride);
  }
};

void var_cpu(const Tensor& out, const Tensor& x, double scale, bool root) {
  dispatch_floating(x.dtype(), "var", [&]<class T>() { reduce<T, T>(out, x, Variance<T>{scale, root}); });
}

void sum_cpu(const Tensor& out, const Tensor& x, double scale) {
  dispatch_bool_as_u8(x, [&]<class T>() { reduce<T, SumResult<T>>(out, x, Sum<T>{scale}); });
}

void prod_cpu(const Tensor& out, const Tensor& x) {
  if (x.dtype() == DType::kI64) return reduce<int64_t, int64_t>(out, x, Prod<int64_t>{});
  dispatch_floating(x.dtype(), "prod", [&]<class T>() { reduce<T, T>(out, x, Prod<T>{}); });
}

template <bool largest> void extreme_cpu(const Tensor& out, const Tensor& x) {
  if (x.dtype() == DType::kBool) return reduce<uint8_t, uint8_t>(out, x, Extreme<uint8_t, largest>{});
  dispatch_numeric(x.dtype(), "amax", [&]<class T>() { reduce<T, T>(out, x, Extreme<T, largest>{}); });
}

template <bool any> void logical_cpu(const Tensor& out, const Tensor& x) {
  reduce<uint8_t, uint8_t>(out, x, Logical<any>{});
}

void norm_cpu(const Tensor& out, const Tensor& x, double p, double scale, bool root) {
  dispatch_floating(x.dtype(), "norm", [&]<class T>() {
    const auto run = [&]<Exponent exponent>() { reduce<T, T>(out, x, Norm<T, exponent>{{scale}, p, root}); };
    if (std::isinf(p)) {
      p > 0 ? reduce<T, T>(out, x, ExtremeAbs<T, true>{}) : reduce<T, T>(out, x, ExtremeAbs<T, false>{});
    } else if (p == 0) {
      run.template operator()<Exponent::kZero>();
    } else if (p == 1) {
      run.template operator()<Exponent::kOne>();
    } else if (p == 2) {
      run.template operator()<Exponent::kTwo>();
    } else {
      run.template operator()<Exponent::kAny>();
    }
  });
}

}  // namespace

constinit decltype(sum_kernel) sum_kernel{"sum", &sum_cpu};
constinit decltype(var_kernel) var_kernel{"var", &var_cpu};
constinit decltype(prod_kernel) prod_kernel{"prod", &prod_cpu};
constinit decltype(amax_kernel) amax_kernel{"amax", &extreme_cpu<true>};
constinit decltype(amin_kernel) amin_kernel{"amin", &extreme_cpu<false>};
constinit decltype(any_kernel) any_kernel{"any", &logical_cpu<true>};
constinit decltype(all_kernel) all_kernel{"all", &logical_cpu<false>};
constinit decltype(norm_kernel) norm_kernel{"norm", &norm_cpu};

}  // namespace gradus::raw
