// Batch normalisation on the CPU. Channels are innermost, so an image is a matrix [rows, C] and a statistic
// is a sum over its rows. It is summed over blocks of rows that do not depend on the number of threads.
// 16-bit floats are computed as f32.
#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/ops/norm.h"
#include "gradus/tensor/parallel.h"

namespace gradus {
namespace {

// The matrix [rows, C] that an image is. Rows of few channels are joined, `fold` at a time, so that loops
// over `width` elements fill vector registers; what belongs to a channel is then repeated.
struct Rows {
  explicit Rows(const Tensor& x) : C(x.size(1)), total(x.numel() / C) {
    while (C * fold * 2 <= 128 && total % (fold * 2) == 0) fold *= 2;
    count = total / fold, width = C * fold;
  }
  // One number a channel, repeated for the width.
  template <class T>
  std::vector<T> spread(const std::function<double(int64_t c)>& f) const {
    std::vector<T> v(width);
    for (int64_t i = 0; i < width; ++i) v[i] = T(f(i % C));
    return v;
  }
  int64_t grain() const { return 1 + 16384 / width; }

  int64_t C, total, fold = 1, count, width;
};

// What T is computed in.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Calls f<T>() for the element types that a batch norm takes.
template <class F>
void dispatch(DType t, F&& f) {
  switch (t) {
    case DType::kF64:
      return f.template operator()<double>();
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF16:
      return f.template operator()<f16>();
    case DType::kBF16:
      return f.template operator()<bf16>();
    default:
      throw InternalError("batch_norm: unexpected dtype ", name_of(t));
  }
}

// Rows to read as numbers of the arithmetic's type: in place, or through a buffer.
template <class T>
class RowsIn {
 public:
  RowsIn(const Tensor& x, int64_t width) : data_(x.ptr<T>()), width_(width) {
    if constexpr (!kInPlace) buffer_.resize(width);
  }
  const Arithmetic<T>* operator[](int64_t r) {
    if constexpr (kInPlace) {
      return data_ + r * width_;
    } else {
      convert_(width_, buffer_.data(), 1, data_ + r * width_, 1);
      return buffer_.data();
    }
  }

 private:
  static constexpr bool kInPlace = std::is_same_v<T, Arithmetic<T>>;
  const T* data_;
  int64_t width_;
  std::vector<float> buffer_;
  cpu::ConvertFunction convert_ = cpu::converter(DType::kF32, dtype_v<T>);
};

// Rows to write: `at` gives the place, `done` completes it.
template <class T>
class RowsOut {
 public:
  RowsOut(const Tensor& y, int64_t width) : data_(y.ptr<T>()), width_(width) {
    if constexpr (!kInPlace) buffer_.resize(width);
  }
  Arithmetic<T>* at(int64_t r) {
    if constexpr (kInPlace)
      return data_ + r * width_;
    else
      return buffer_.data();
  }
  void done(int64_t r) {
    if constexpr (!kInPlace) convert_(width_, data_ + r * width_, 1, buffer_.data(), 1);
  }

 private:
  static constexpr bool kInPlace = std::is_same_v<T, Arithmetic<T>>;
  T* data_;
  int64_t width_;
  std::vector<float> buffer_;
  cpu::ConvertFunction convert_ = cpu::converter(dtype_v<T>, DType::kF32);
};

// Returns K sums per channel over all rows: `make` gives, for each block, a function add(part, r) that adds
// row r to K * width numbers. A few rows are added as they are, so that they go through vector registers,
// before their sum is added in double.
template <class T, class Make>
std::vector<double> sum_rows(const Rows& rows, int K, Make make) {
  const int64_t width = K * rows.width;
  const int64_t blocks = std::clamp<int64_t>(rows.count * rows.width / 16384, 1, 64);
  std::vector<double> sums(blocks * width, 0.0);
  parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    auto add = make();
    std::vector<Arithmetic<T>> part(width);
    for (int64_t b = first; b < last; ++b) {
      double* __restrict sum = sums.data() + b * width;
      const int64_t end = rows.count * (b + 1) / blocks;
      for (int64_t r = rows.count * b / blocks; r < end;) {
        std::fill(part.begin(), part.end(), 0);
        for (const int64_t stop = std::min(end, r + 16); r < stop; ++r) add(part.data(), r);
        for (int64_t i = 0; i < width; ++i) sum[i] += part[i];
      }
    }
  });
  std::vector<double> total(K * rows.C, 0.0);
  for (int64_t i = 0; i < blocks * width; ++i)
    total[(i % width) / rows.width * rows.C + i % rows.C] += sums[i];
  return total;
}

// The normalised value. In one place: the gradient of a rectified batch norm finds the sign of the result
// again.
template <class A>
inline A normalised(A v, A mean, A scale, A shift) {
  return std::fma(v - mean, scale, shift);
}

// weight / sqrt(var + eps), by channel.
template <class A>
double scale_of(const Tensor& weight, double var, double eps, int64_t c) {
  return (weight.defined() ? weight.ptr<A>()[c] : 1.0) / std::sqrt(var + eps);
}

// The numbers of each channel that turn x into y.
template <class A>
struct Affine {
  Affine(const Rows& rows, const Tensor& m, const Tensor& var, const Tensor& weight, const Tensor& bias,
         double eps)
      : mean(rows.spread<A>([&](int64_t c) { return m.ptr<A>()[c]; })),
        scale(rows.spread<A>([&](int64_t c) { return scale_of<A>(weight, var.ptr<A>()[c], eps, c); })),
        shift(rows.spread<A>([&](int64_t c) { return bias.defined() ? bias.ptr<A>()[c] : 0.0; })) {}
  std::vector<A> mean, scale, shift;
};

template <class T>
void normalise(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
               const Tensor& bias, double eps) {
  using A = Arithmetic<T>;
  const Rows rows(x);
  const Affine<A> affine(rows, mean, var, weight, bias, eps);
  parallel_for(0, rows.count, rows.grain(), [&](int64_t first, int64_t last) {
    RowsIn<T> in(x, rows.width);
    RowsOut<T> out(y, rows.width);
    const A *m = affine.mean.data(), *s = affine.scale.data(), *b = affine.shift.data();
    for (int64_t r = first; r < last; ++r) {
      const A* __restrict v = in[r];
      A* __restrict to = out.at(r);
      for (int64_t i = 0; i < rows.width; ++i) to[i] = normalised(v[i], m[i], s[i], b[i]);
      out.done(r);
    }
  });
}

struct Moments {
  std::vector<double> mean, m2;  // by channel; m2: sum of squared differences from the mean
};

// Mean and m2 in one pass over differences from a guess: the mean of some rows. Where the guess is so far off
// that the subtraction at the end would cost digits, a second pass goes over differences from the mean
// itself.
template <class T>
Moments moments(const Tensor& x) {
  using A = Arithmetic<T>;
  const Rows rows(x);
  const double n = double(rows.total);
  std::vector<double> guess(rows.width, 0.0);
  {
    RowsIn<T> in(x, rows.width);
    const int64_t samples = std::min<int64_t>(rows.count, 32);
    for (int64_t k = 0; k < samples; ++k) {
      const A* v = in[rows.count * k / samples];
      for (int64_t i = 0; i < rows.width; ++i) guess[i] += v[i] / double(samples);
    }
  }
  std::vector<double> channel_guess(rows.C, 0.0);
  for (int64_t i = 0; i < rows.width; ++i) channel_guess[i % rows.C] += guess[i] / double(rows.fold);
  std::vector<A> about = rows.spread<A>([&](int64_t c) { return channel_guess[c]; });

  const auto differences = [&] {  // from `about`: their sums and those of their squares
    return sum_rows<T>(rows, 2, [&] {
      return [&rows, a = about.data(), in = RowsIn<T>(x, rows.width)](A* __restrict part, int64_t r) mutable {
        const A* __restrict v = in[r];
        A* __restrict squares = part + rows.width;
        for (int64_t i = 0; i < rows.width; ++i) {
          const A d = v[i] - a[i];
          part[i] += d;
          squares[i] = std::fma(d, d, squares[i]);
        }
      };
    });
  };
  std::vector<double> sums = differences();
  bool far = false;
  for (int64_t c = 0; c < rows.C; ++c) {
    const double off = sums[c] * sums[c] / n;
    far |= off > 16 * (sums[rows.C + c] - off);
  }
  if (far) {
    for (int64_t i = 0; i < rows.width; ++i) about[i] = A(about[i] + sums[i % rows.C] / n);
    sums = differences();
  }
  Moments result;
  for (int64_t c = 0; c < rows.C; ++c) {
    result.mean.push_back(about[c] + sums[c] / n);
    result.m2.push_back(std::max(0.0, sums[rows.C + c] - sums[c] * sums[c] / n));
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

template <class A>
void affine_row(int64_t n, A* to, const A* add, const A* x, const A* mean, const A* offset, const A* slope) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = add[i] + (offset[i] + (x[i] - mean[i]) * slope[i]);
}

void batch_statistics_backward_cpu(const Tensor& dx, const Tensor& add, const Tensor& x, const Tensor& mean,
                                   const Tensor& offset, const Tensor& slope) {
  dispatch(x.dtype(), [&]<class T>() {
    using A = Arithmetic<T>;
    const Rows rows(x);
    const auto by_channel = [&](const Tensor& t) {
      return rows.spread<A>([&](int64_t c) { return t.ptr<A>()[c]; });
    };
    const auto m = by_channel(mean), a = by_channel(offset), b = by_channel(slope);
    const std::vector<A> none(rows.width, 0);
    parallel_for(0, rows.count, rows.grain(), [&](int64_t first, int64_t last) {
      RowsIn<T> in(x, rows.width), added(add.defined() ? add : x, rows.width);
      RowsOut<T> out(dx, rows.width);
      for (int64_t r = first; r < last; ++r) {
        affine_row(rows.width, out.at(r), add.defined() ? added[r] : none.data(), in[r], m.data(), a.data(),
                   b.data());
        out.done(r);
      }
    });
  });
}

// dx = dy * scale; adds dy and dy * (x - mean) to the sums.
template <class A>
void apply_backward_row(int64_t n, A* __restrict dx, A* __restrict sum, A* __restrict centred_sum,
                        const A* __restrict dy, const A* __restrict x, const A* __restrict mean,
                        const A* __restrict scale) {
  for (int64_t i = 0; i < n; ++i) {
    sum[i] += dy[i];
    centred_sum[i] += dy[i] * (x[i] - mean[i]);
    dx[i] = dy[i] * scale[i];
  }
}

void batch_norm_apply_backward_cpu(const Tensor& dx, const Tensor& sum, const Tensor& centred_sum,
                                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                   const Tensor& weight, double eps) {
  dispatch(x.dtype(), [&]<class T>() {
    using A = Arithmetic<T>;
    const Rows rows(x);
    const Affine<A> affine(rows, mean, var, weight, {}, eps);
    const auto sums = sum_rows<T>(rows, 2, [&] {
      return [&, in = RowsIn<T>(x, rows.width), grad = RowsIn<T>(dy, rows.width),
              out = RowsOut<T>(dx, rows.width)](A* part, int64_t r) mutable {
        apply_backward_row(rows.width, out.at(r), part, part + rows.width, grad[r], in[r], affine.mean.data(),
                           affine.scale.data());
        out.done(r);
      };
    });
    for (int64_t c = 0; c < rows.C; ++c) {
      sum.ptr<A>()[c] = A(sums[c]);
      centred_sum.ptr<A>()[c] = A(sums[rows.C + c]);
    }
  });
}

void batch_norm_apply_cpu(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var,
                          const Tensor& weight, const Tensor& bias, double eps) {
  dispatch(x.dtype(), [&]<class T>() { normalise<T>(y, x, mean, var, weight, bias, eps); });
}

void batch_norm_cpu(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                    const Tensor& weight, const Tensor& bias, double eps) {
  dispatch(x.dtype(), [&]<class T>() {
    using A = Arithmetic<T>;
    const Rows rows(x);
    const Moments s = moments<T>(x);
    for (int64_t c = 0; c < rows.C; ++c)
      mean.ptr<A>()[c] = A(s.mean[c]), var.ptr<A>()[c] = A(s.m2[c] / double(rows.total));
    normalise<T>(y, x, mean, var, weight, bias, eps);
  });
}

// Adds a row's dy and dy * (x - mean) to the sums; of a rectified result, where it is positive.
template <bool kRectified, class A>
void backward_sums_row(int64_t n, A* __restrict sum, A* __restrict centred_sum, const A* __restrict dy,
                       const A* __restrict x, const Affine<A>& affine) {
  const A *m = affine.mean.data(), *s = affine.scale.data(), *b = affine.shift.data();
  for (int64_t i = 0; i < n; ++i) {
    A g = dy[i];
    if constexpr (kRectified) g = normalised(x[i], m[i], s[i], b[i]) > 0 ? g : A(0);
    sum[i] += g;
    centred_sum[i] += g * (x[i] - m[i]);
  }
}

// dx = scale * (dy - offset - (x - mean) * slope). dx may be dy.
template <bool kRectified, class A>
void backward_row(int64_t n, A* dx, const A* dy, const A* x, const Affine<A>& affine, const A* offset,
                  const A* slope) {
  const A *m = affine.mean.data(), *s = affine.scale.data(), *b = affine.shift.data();
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    A g = dy[i];
    if constexpr (kRectified) g = normalised(x[i], m[i], s[i], b[i]) > 0 ? g : A(0);
    dx[i] = s[i] * (g - offset[i] - (x[i] - m[i]) * slope[i]);
  }
}

template <class T, bool kRectified>
void backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy, const Tensor& x,
              const Tensor& var, const Affine<Arithmetic<T>>& affine, double eps) {
  using A = Arithmetic<T>;
  const Rows rows(x);
  const auto sums = sum_rows<T>(rows, 2, [&] {
    return [&, in = RowsIn<T>(x, rows.width), grad = RowsIn<T>(dy, rows.width)](A* part, int64_t r) mutable {
      backward_sums_row<kRectified>(rows.width, part, part + rows.width, grad[r], in[r], affine);
    };
  });
  std::vector<double> inv_var(rows.C);
  for (int64_t c = 0; c < rows.C; ++c) {
    inv_var[c] = 1 / (var.ptr<A>()[c] + eps);
    dbias.ptr<A>()[c] = A(sums[c]);
    dweight.ptr<A>()[c] = A(sums[rows.C + c] * std::sqrt(inv_var[c]));
  }
  const double n = double(rows.total);
  const auto offset = rows.spread<A>([&](int64_t c) { return sums[c] / n; });
  const auto slope = rows.spread<A>([&](int64_t c) { return sums[rows.C + c] * inv_var[c] / n; });
  parallel_for(0, rows.count, rows.grain(), [&](int64_t first, int64_t last) {
    RowsIn<T> in(x, rows.width), grad(dy, rows.width);
    RowsOut<T> out(dx, rows.width);
    for (int64_t r = first; r < last; ++r) {
      backward_row<kRectified>(rows.width, out.at(r), grad[r], in[r], affine, offset.data(), slope.data());
      out.done(r);
    }
  });
}

void batch_norm_backward_cpu(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                             const Tensor& bias, double eps, bool rectified) {
  dispatch(x.dtype(), [&]<class T>() {
    const Affine<Arithmetic<T>> affine(Rows(x), mean, var, weight, bias, eps);
    if (rectified)
      backward<T, true>(dx, dweight, dbias, dy, x, var, affine, eps);
    else
      backward<T, false>(dx, dweight, dbias, dy, x, var, affine, eps);
  });
}

void batch_norm_update_cpu(const Tensor& running_mean, const Tensor& running_var, const Tensor& mean,
                           const Tensor& var, int64_t rows, double momentum) {
  dispatch_floating(mean.dtype(), "batch_norm_update_", [&]<class T>() {
    const double unbiased = double(rows) / double(rows - 1);
    for (int64_t c = 0; c < mean.numel(); ++c) {
      T &m = running_mean.ptr<T>()[c], &v = running_var.ptr<T>()[c];
      m = T(m + momentum * (mean.ptr<T>()[c] - m));
      v = T(v + momentum * (var.ptr<T>()[c] * unbiased - v));
    }
  });
}

const RegisterKernel registrations[] = {
    {raw::batch_norm_kernel, DeviceType::kCPU, &batch_norm_cpu},
    {raw::batch_norm_apply_kernel, DeviceType::kCPU, &batch_norm_apply_cpu},
    {raw::batch_norm_backward_kernel, DeviceType::kCPU, &batch_norm_backward_cpu},
    {raw::batch_norm_update_kernel, DeviceType::kCPU, &batch_norm_update_cpu},
    {raw::batch_statistics_kernel, DeviceType::kCPU, &batch_statistics_cpu},
    {raw::batch_statistics_backward_kernel, DeviceType::kCPU, &batch_statistics_backward_cpu},
    {raw::batch_norm_apply_backward_kernel, DeviceType::kCPU, &batch_norm_apply_backward_cpu},
};

}  // namespace
}  // namespace gradus
