// CPU kernels of batch normalization and its gradients, also fused with a residual addition and relu or
// leaky_relu. x is a channels-last [N, C, ...], so a batch is a matrix [rows, C], and a statistic is a sum
// over its rows:
//   y = (x - mean) * weight / sqrt(var + eps) + bias
// Rows are summed in blocks that do not depend on the number of threads. 16-bit floats are computed in f32.
// [C] tensors have x's dtype, f32 if x has 16 bits; the mean and m2 of batch_statistics are f64. weight,
// bias, residual, add and running statistics may be undefined. Which result may alias an input, and other
// contracts of the kernels, are in ops/norm/batch_norm.h; x is not empty.
#include <algorithm>
#include <cmath>
#include <new>
#include <type_traits>
#include <vector>

#include "gradus/tensor/cpu/wide_vectors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/formulas/batch_norm.h"
#include "gradus/tensor/ops/norm/batch_norm.h"
#include "gradus/tensor/runtime/flush_denormal.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

// An allocator with cache-line alignment, for arrays that loops read as whole vectors.
template <class T> struct CacheLineAllocator {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const CacheLineAllocator&) const = default;
};
// One value per channel.
template <class T> using Channels = std::vector<T, CacheLineAllocator<T>>;

// A batch of images as a matrix of `count` rows of `width` elements. If C is small, `fold` pixels form one
// row, so that loops over a row fill vector registers; values per channel are then repeated `fold` times.
struct ImageRows {
  explicit ImageRows(const Tensor& x) : C(x.size(1)), total(x.numel() / C) {
    while (C * fold * 2 <= 128 && total % (fold * 2) == 0) fold *= 2;
    count = total / fold, width = C * fold;
  }
  // Returns f(c) for each channel c, repeated to `width` values.
  template <class T, class F> Channels<T> repeat_per_channel(F f) const {
    Channels<T> v(width);
    for (int64_t c = 0; c < C; ++c) v[c] = T(f(c));
    for (int64_t i = C; i < width; ++i) v[i] = v[i - C];
    return v;
  }
  template <class T> T* at(const Tensor& t, int64_t row) const { return t.ptr<T>() + row * width; }
  int64_t grain() const { return 1 + 16384 / width; }

  int64_t C, total, fold = 1, count, width;
};

// The type in which elements of T are computed.
template <class T> using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Calls f<T>() with the C++ type of a floating dtype, including 16-bit types.
template <class F> void dispatch(DType t, F&& f) {
  dispatch_all(t, [&]<class T>() {
    if constexpr (is_floating(dtype_v<T>)) f.template operator()<T>();
  });
}

// Calls f(N, row) for blocks of N rows that cover [first, last): N is std::integral_constant 8, then 1.
template <class F> void for_each_rows(int64_t first, int64_t last, F f) {
  int64_t r = first;
  for (; r + 8 <= last; r += 8) f(std::integral_constant<int, 8>(), r);
  for (; r < last; ++r) f(std::integral_constant<int, 1>(), r);
}

// Returns K sums per channel over all rows, as [K, C]. add(N, part, r) adds rows [r, r + N) to part
// [K, width]. Up to kRowsInPart rows are summed in A, their sums in f64.
template <int K, class A, class Add> std::vector<double> sum_rows(const ImageRows& rows, Add add) {
  constexpr int64_t kRowsInPart = 32;
  const int64_t width = K * rows.width;
  const int64_t max_blocks = std::clamp<int64_t>(rows.count / kRowsInPart, 1, 64);
  const int64_t blocks = std::clamp<int64_t>(rows.count * rows.width / 32768, 1, max_blocks);
  std::vector<double> sums(blocks * width, 0.0);
  parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    Channels<A> partial(width);
    for (int64_t b = first; b < last; ++b) {
      double* __restrict sum = sums.data() + b * width;
      const int64_t end = rows.count * (b + 1) / blocks;
      for (int64_t r = rows.count * b / blocks; r < end; r += kRowsInPart) {
        std::fill(partial.begin(), partial.end(), A(0));
        cpu::with_wide_vectors([&] {
          for_each_rows(r, std::min(end, r + kRowsInPart),
                        [&](auto count, int64_t row) { add(count, partial.data(), row); });
          const A* __restrict p = partial.data();
          for (int64_t i = 0; i < width; ++i) sum[i] += p[i];
        });
      }
    }
  });
  std::vector<double> total(K * rows.C, 0.0);
  const double* __restrict from = sums.data();
  for (int64_t b = 0; b < blocks; ++b)
    for (int k = 0; k < K; ++k)
      for (int64_t f = 0; f < rows.fold; ++f, from += rows.C) {
        double* __restrict to = total.data() + k * rows.C;
        for (int64_t c = 0; c < rows.C; ++c) to[c] += from[c];
      }
  return total;
}

using formulas::normalized;
using formulas::relu;

// Returns weight[c] / sqrt(var + eps).
template <class A> double scale_of(const Tensor& weight, double var, double eps, int64_t c) {
  return formulas::batch_norm_scale(weight.defined() ? weight.ptr<A>()[c] : 1.0, var, eps);
}

// The coefficients per channel of y = (x - mean) * scale + shift.
template <class A> struct Affine {
  Affine(const ImageRows& rows, const Tensor& m, const Tensor& var, const Tensor& weight, const Tensor& bias,
         double eps)
      : mean(rows.repeat_per_channel<A>([&](int64_t c) { return m.ptr<A>()[c]; })),
        scale(rows.repeat_per_channel<A>(
            [&](int64_t c) { return scale_of<A>(weight, var.ptr<A>()[c], eps, c); })),
        shift(
            rows.repeat_per_channel<A>([&](int64_t c) { return bias.defined() ? bias.ptr<A>()[c] : 0.0; })) {}
  Channels<A> mean, scale, shift;
};

// Calls f(r) for all rows in parallel, compiled for wide vectors too.
template <class F> void for_each_row(const ImageRows& rows, F f) {
  parallel_for(0, rows.count, rows.grain(), [&](int64_t first, int64_t last) {
    cpu::with_wide_vectors([&] {
      for (int64_t r = first; r < last; ++r) f(r);
    });
  });
}

// y[i] = finish(normalized x[i], i). y may alias a tensor that `finish` reads at i.
template <class T, class A, class F>
void normalize(const Tensor& y, const Tensor& x, const Affine<A>& affine, F finish) {
  const ImageRows rows(x);
  for_each_row(rows, [&](int64_t r) {
    const A *mean = affine.mean.data(), *scale = affine.scale.data(), *shift = affine.shift.data();
    T* const to = rows.at<T>(y, r);
    const T* const v = rows.at<T>(x, r);
    const F local = finish;  // a local copy, whose pointers stay in registers
    const int64_t width = rows.width, at = r * width;
#pragma GCC ivdep
    for (int64_t i = 0; i < width; ++i)
      to[i] = T(local(normalized(A(v[i]), mean[i], scale[i], shift[i]), at + i));
  });
}
template <class T, class A> void normalize(const Tensor& y, const Tensor& x, const Affine<A>& affine) {
  normalize<T>(y, x, affine, [](A v, int64_t) { return v; });
}

// The statistics of a batch, from which mean and biased variance m2 / rows follow.
struct Moments {
  std::vector<double> mean, m2;  // per channel; m2 = sum (x - mean)^2
};

// Accumulates two sums per column over N rows of n elements. add(at, i, a, b) adds the terms of element `at`,
// which is in column i, to a and b.
template <int N, class A, class F> inline void add_rows(int64_t n, A* first, A* second, F add) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    A a = 0, b = 0;
#pragma GCC unroll 8
    for (int r = 0; r < N; ++r) add(r * n + i, i, a, b);
    first[i] += a;
    second[i] += b;
  }
}

// Returns mean and m2 per channel by the shifted-data algorithm: with a guess k of the mean (the mean of some
// rows),
//   mean = k + sum(x - k) / n,  m2 = sum (x - k)^2 - (sum(x - k))^2 / n
// If k is so far from the mean that this subtraction would cancel, a second pass uses k = mean.
template <class T> Moments moments(const Tensor& x) {
  using A = Arithmetic<T>;
  const ImageRows rows(x);
  const double n = double(rows.total);
  std::vector<double> guess(rows.width, 0.0);
  const int64_t samples = std::min<int64_t>(rows.count, 32);
  for (int64_t k = 0; k < samples; ++k) {
    const T* v = rows.at<T>(x, rows.count * k / samples);
    for (int64_t i = 0; i < rows.width; ++i) guess[i] += A(v[i]);
  }
  std::vector<double> channel_guess(rows.C, 0.0);
  for (int64_t i = 0; i < rows.width; ++i)
    channel_guess[i % rows.C] += guess[i] / double(samples * rows.fold);
  Channels<A> pivot = rows.repeat_per_channel<A>([&](int64_t c) { return channel_guess[c]; });
  const auto shifted_sums = [&] {  // sum(x - pivot) and sum (x - pivot)^2 per channel
    return sum_rows<2, A>(rows, [&](auto count, A* partial, int64_t r) {
      add_rows<count()>(rows.width, partial, partial + rows.width,
                        [v = rows.at<T>(x, r), a = pivot.data()](int64_t at, int64_t i, A& sum, A& squares) {
                          const A d = A(v[at]) - a[i];
                          sum += d;
                          squares = std::fma(d, d, squares);
                        });
    });
  };
  std::vector<double> sums = shifted_sums();
  bool cancels = false;
  for (int64_t c = 0; c < rows.C; ++c) {
    const double off = sums[c] * sums[c] / n;
    cancels |= off > 16 * (sums[rows.C + c] - off);
  }
  if (cancels) {
    for (int64_t i = 0; i < rows.width; ++i) pivot[i] = A(pivot[i] + sums[i % rows.C] / n);
    sums = shifted_sums();
  }
  Moments result;
  for (int64_t c = 0; c < rows.C; ++c) {
    result.mean.push_back(pivot[c] + sums[c] / n);
    result.m2.push_back(formulas::squares_about_mean(sums[c], sums[rows.C + c], n));
  }
  return result;
}

void batch_statistics_cpu(const Tensor& mean, const Tensor& m2, const Tensor& x) {
  dispatch(x.dtype(), [&]<class T>() {
    const Moments s = moments<T>(x);
    std::copy(s.mean.begin(), s.mean.end(), mean.ptr<double>());
    std::copy(s.m2.begin(), s.m2.end(), m2.ptr<double>());
  });
}

// One row of n elements: to = offset + (x - mean) * slope, plus `add` if not null. `to` may alias `add`.
template <class T, class A>
void affine_row(int64_t n, T* to, const A* add, const T* x, const A* mean, const A* offset, const A* slope) {
  if (add) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      to[i] = T(add[i] + formulas::affine_about_mean(A(x[i]), mean[i], offset[i], slope[i]));
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      to[i] = T(formulas::affine_about_mean(A(x[i]), mean[i], offset[i], slope[i]));
  }
}

void batch_statistics_backward_cpu(const Tensor& dx, const Tensor& add, const Tensor& x, const Tensor& mean,
                                   const Tensor& offset, const Tensor& slope) {
  dispatch(x.dtype(), [&]<class T>() {
    using A = Arithmetic<T>;
    const ImageRows rows(x);
    const auto by_channel = [&](const Tensor& t) {
      return rows.repeat_per_channel<A>([&](int64_t c) { return t.ptr<A>()[c]; });
    };
    const auto m = by_channel(mean), a = by_channel(offset), b = by_channel(slope);
    for_each_row(rows, [&](int64_t r) {
      affine_row<T>(rows.width, rows.at<T>(dx, r), add.defined() ? rows.at<A>(add, r) : nullptr,
                    rows.at<T>(x, r), m.data(), a.data(), b.data());
    });
  });
}

void batch_norm_apply_backward_cpu(const Tensor& dx, const Tensor& sum, const Tensor& centered_sum,
                                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                   const Tensor& weight, double eps) {
  dispatch(x.dtype(), [&]<class T>() {
    using A = Arithmetic<T>;
    const ImageRows rows(x);
    const Affine<A> affine(rows, mean, var, weight, {}, eps);
    const auto sums = sum_rows<2, A>(rows, [&](auto count, A* partial, int64_t r) {
      const auto add = [to = rows.at<A>(dx, r), g = rows.at<T>(dy, r), v = rows.at<T>(x, r),
                        mean = affine.mean.data(),
                        scale = affine.scale.data()](int64_t at, int64_t i, A& sum, A& centered) {
        const A grad = g[at];
        sum += grad;
        centered = std::fma(grad, A(v[at]) - mean[i], centered);
        to[at] = grad * scale[i];
      };
      add_rows<count()>(rows.width, partial, partial + rows.width, add);
    });
    for (int64_t c = 0; c < rows.C; ++c) {
      sum.ptr<A>()[c] = A(sums[c]);
      centered_sum.ptr<A>()[c] = A(sums[rows.C + c]);
    }
  });
}

void batch_norm_apply_cpu(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var,
                          const Tensor& weight, const Tensor& bias, double eps) {
  dispatch(x.dtype(), [&]<class T>() {
    normalize<T>(y, x, Affine<Arithmetic<T>>(ImageRows(x), mean, var, weight, bias, eps));
  });
}

// Computes the batch's mean and biased variance, writes them, and returns the coefficients that normalize by them.
template <class T, class A = Arithmetic<T>>
Affine<A> batch_affine(const Tensor& mean, const Tensor& var, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, double eps) {
  const ImageRows rows(x);
  const Moments s = moments<T>(x);
  for (int64_t c = 0; c < rows.C; ++c)
    mean.ptr<A>()[c] = A(s.mean[c]), var.ptr<A>()[c] = A(s.m2[c] / double(rows.total));
  return Affine<A>(rows, mean, var, weight, bias, eps);
}

// Moves the running statistics toward the batch's mean and unbiased variance. `rows` >= 2 per channel.
void batch_norm_update_cpu(const Tensor& mean, const Tensor& var, const RunningStatistics& running,
                           int64_t rows) {
  const auto move = [&](const Tensor& statistic, const Tensor& batch, double factor) {
    if (!statistic.defined()) return;
    dispatch(statistic.dtype(), [&]<class T>() {
      using A = Arithmetic<T>;
      for (int64_t c = 0; c < batch.numel(); ++c) {
        T& v = statistic.ptr<T>()[c];
        v = T(A(formulas::updated_statistic(A(v), batch.ptr<A>()[c] * factor, running.momentum)));
      }
    });
  };
  move(running.mean, mean, 1);
  move(running.var, var, double(rows) / double(rows - 1));
  if (running.batches.defined()) ++*running.batches.ptr<int64_t>();
}

void batch_norm_cpu(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                    const Tensor& weight, const Tensor& bias, double eps, const RunningStatistics& running) {
  dispatch(x.dtype(),
           [&]<class T>() { normalize<T>(y, x, batch_affine<T>(mean, var, x, weight, bias, eps)); });
  batch_norm_update_cpu(mean, var, running, ImageRows(x).total);
}

void batch_norm_relu_cpu(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                         const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps,
                         double negative_slope, const RunningStatistics& running) {
  dispatch(x.dtype(), [&]<class T>() {
    const auto affine = batch_affine<T>(mean, var, x, weight, bias, eps);
    using A = Arithmetic<T>;
    const auto rectify = [&](auto partial) {
      if (!residual.defined())
        return normalize<T>(y, x, affine, [partial](A v, int64_t) { return partial(v); });
      normalize<T>(y, x, affine, [partial, add = residual.ptr<const T>()](A v, int64_t i) {
        return partial(v + A(add[i]));
      });
    };
    if (negative_slope == 0)
      rectify([](A v) { return relu(v); });
    else
      rectify([slope = A(negative_slope)](A v) { return formulas::leaky_relu(v, slope); });
  });
  batch_norm_update_cpu(mean, var, running, ImageRows(x).total);
}

// Gradient functors: the gradient of the normalized value, given dy and the input v: without activation, and
// after relu and leaky_relu, whose input is recomputed from v.
struct IdentityGradient {
  template <class A> A operator()(A dy, A, A, A, A) const { return dy; }
};
struct ReluGradient {
  template <class A> A operator()(A dy, A v, A mean, A scale, A shift) const {
    return formulas::relu_gradient(dy, normalized(v, mean, scale, shift));
  }
};
template <class A> struct LeakyReluGradient {
  A slope;
  A operator()(A dy, A v, A mean, A scale, A shift) const {
    return formulas::leaky_relu_gradient(dy, normalized(v, mean, scale, shift), slope);
  }
};

// dx = scale * (g - offset - (x - mean) * slope) with g = gradient(dy). dx may alias dy.
template <class T, class A, class Gradient>
void backward_row(int64_t n, T* dx, const T* dy, const T* x, const Affine<A>& affine, const A* offset,
                  const A* slope, Gradient gradient) {
  const A *m = affine.mean.data(), *s = affine.scale.data(), *b = affine.shift.data();
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const A v = x[i], g = gradient(A(dy[i]), v, m[i], s[i], b[i]);
    dx[i] = T(formulas::batch_norm_dx(g, v, m[i], s[i], offset[i], slope[i]));
  }
}

// Computes dx, dweight and dbias from sums = [sum(g), sum(g * (x - mean))] per channel, where g = gradient(dy).
template <class T, class Gradient>
void backward_by_sums(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                      const Tensor& x, const Tensor& var, const Affine<Arithmetic<T>>& affine, double eps,
                      const std::vector<double>& sums, Gradient gradient) {
  using A = Arithmetic<T>;
  const ImageRows rows(x);
  std::vector<formulas::BatchNormGradCoefficients> slopes(rows.C);
  for (int64_t c = 0; c < rows.C; ++c) {
    slopes[c] = formulas::batch_norm_grad_coefficients(sums[c], sums[rows.C + c], double(rows.total),
                                                       var.ptr<A>()[c], eps);
    dbias.ptr<A>()[c] = A(sums[c]);
    dweight.ptr<A>()[c] = A(slopes[c].dweight);
  }
  const auto offset = rows.repeat_per_channel<A>([&](int64_t c) { return slopes[c].offset; });
  const auto slope = rows.repeat_per_channel<A>([&](int64_t c) { return slopes[c].slope; });
  for_each_row(rows, [&](int64_t r) {
    backward_row(rows.width, rows.at<T>(dx, r), static_cast<const T*>(rows.at<T>(dy, r)),
                 static_cast<const T*>(rows.at<T>(x, r)), affine, offset.data(), slope.data(), gradient);
  });
}

// Two passes over dy and x: the sums per channel, then dx.
template <class T, class Gradient>
void backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy, const Tensor& x,
              const Tensor& var, const Affine<Arithmetic<T>>& affine, double eps, Gradient gradient) {
  using A = Arithmetic<T>;
  const ImageRows rows(x);
  const auto sums = sum_rows<2, A>(rows, [&](auto count, A* partial, int64_t r) {
    const auto add = [dy = rows.at<T>(dy, r), x = rows.at<T>(x, r), m = affine.mean.data(),
                      s = affine.scale.data(), b = affine.shift.data(),
                      gradient](int64_t at, int64_t i, A& sum, A& centered) {
      const A v = x[at], g = gradient(A(dy[at]), v, m[i], s[i], b[i]);
      sum += g;
      centered = std::fma(g, v - m[i], centered);
    };
    add_rows<count()>(rows.width, partial, partial + rows.width, add);
  });
  backward_by_sums<T>(dx, dweight, dbias, dy, x, var, affine, eps, sums, gradient);
}

void batch_norm_backward_cpu(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                             const Tensor& bias, double eps, double negative_slope) {
  // negative_slope 1: no activation; 0: relu.
  dispatch(x.dtype(), [&]<class T>() {
    using A = Arithmetic<T>;
    const Affine<A> affine(ImageRows(x), mean, var, weight, bias, eps);
    const auto run = [&](auto gradient) {
      backward<T>(dx, dweight, dbias, dy, x, var, affine, eps, gradient);
    };
    if (negative_slope == 1)
      run(IdentityGradient());
    else if (negative_slope == 0)
      run(ReluGradient());
    else
      run(LeakyReluGradient<A>{A(negative_slope)});
  });
}

void batch_norm_add_relu_backward_cpu(const Tensor& dx, const Tensor& dresidual, const Tensor& dweight,
                                      const Tensor& dbias, const Tensor& dy, const Tensor& y, const Tensor& x,
                                      const Tensor& mean, const Tensor& var, const Tensor& weight,
                                      double eps) {
  dispatch(x.dtype(), [&]<class T>() {
    using A = Arithmetic<T>;
    const ImageRows rows(x);
    const Affine<A> affine(rows, mean, var, weight, {}, eps);
    const auto sums = sum_rows<2, A>(rows, [&](auto count, A* partial, int64_t r) {
      // The gradient of relu: dy where y is not 0. dresidual may be dy.
      const auto add = [g = rows.at<T>(dresidual, r), dy = rows.at<T>(dy, r), y = rows.at<T>(y, r),
                        x = rows.at<T>(x, r),
                        mean = affine.mean.data()](int64_t at, int64_t i, A& sum, A& centered) {
        const A relu_grad = formulas::relu_gradient(A(dy[at]), A(y[at]));
        g[at] = T(relu_grad);
        sum += relu_grad;
        centered = std::fma(relu_grad, A(x[at]) - mean[i], centered);
      };
      add_rows<count()>(rows.width, partial, partial + rows.width, add);
    });
    backward_by_sums<T>(dx, dweight, dbias, dresidual, x, var, affine, eps, sums, IdentityGradient());
  });
}

}  // namespace

constinit decltype(batch_norm_kernel) batch_norm_kernel{"batch_norm", cpu::flushing<&batch_norm_cpu>};
constinit decltype(batch_norm_relu_kernel) batch_norm_relu_kernel{"batch_norm_relu",
                                                                  cpu::flushing<&batch_norm_relu_cpu>};
constinit decltype(batch_norm_apply_kernel) batch_norm_apply_kernel{"batch_norm",
                                                                    cpu::flushing<&batch_norm_apply_cpu>};
constinit decltype(batch_norm_backward_kernel) batch_norm_backward_kernel{
    "batch_norm_backward", cpu::flushing<&batch_norm_backward_cpu>};
constinit decltype(batch_norm_add_relu_backward_kernel) batch_norm_add_relu_backward_kernel{
    "batch_norm_add_relu_backward", cpu::flushing<&batch_norm_add_relu_backward_cpu>};
constinit decltype(batch_norm_update_kernel) batch_norm_update_kernel{"batch_norm_update_",
                                                                      cpu::flushing<&batch_norm_update_cpu>};
constinit decltype(batch_statistics_kernel) batch_statistics_kernel{"batch_statistics",
                                                                    cpu::flushing<&batch_statistics_cpu>};
constinit decltype(batch_statistics_backward_kernel) batch_statistics_backward_kernel{
    "batch_statistics_backward", cpu::flushing<&batch_statistics_backward_cpu>};
constinit decltype(batch_norm_apply_backward_kernel) batch_norm_apply_backward_kernel{
    "batch_norm_apply_backward", cpu::flushing<&batch_norm_apply_backward_cpu>};

}  // namespace gradus::raw
