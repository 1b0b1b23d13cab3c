// CPU kernels of group and instance normalization, with first and second gradients, and of the sum over a window
// of channels. Images are channels-last, so a sample is a matrix [rows, C]. Group statistics become coefficients
// per channel, so every pass is a loop over rows. All passes over a sample run while it is in the cache. Rows are
// summed in blocks that do not depend on the number of threads. Statistics and sums are f64. The raw ops of
// tensor/ops/norm/group_norm.cc call these kernels: x and y f32 or f64, not empty; mean and var f64 [N,
// groups]; weight and bias [C], which may be undefined (1 and 0), of x's dtype. No result aliases an input.
#include "gradus/tensor/ops/norm/group_norm.h"
#include "gradus/tensor/kernel.h"

#include <cmath>
#include <vector>

#include "gradus/tensor/runtime/flush_denormal.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

constexpr int64_t kGrain = 16384;  // minimum number of elements per thread

// The sizes of a batch x [N, C, ...]. per_group: channels per group.
struct Samples {
  const Tensor& x;
  const GroupNormSpec& spec;
  int64_t N = x.size(0), C = x.size(1), rows = x.numel() / (N * C);
  int64_t groups = spec.groups, per_group = C / groups;
  double group_size() const { return double(rows * per_group); }
};

// Calls f(sample) for each sample, in parallel if there are at least as many samples as threads. Otherwise
// the loops inside f are parallel.
template <class F> void for_each_sample(const Samples& s, F f) {
  const int64_t grain = s.N < num_threads() ? s.N : 1 + kGrain / (s.rows * s.C);
  parallel_for(0, s.N, grain, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) f(n);
  });
}

// Returns the number of blocks of rows with separate partial sums.
int64_t blocks_of(const Samples& s) {
  return std::min(s.rows, std::clamp<int64_t>(s.rows * s.C / 65536, 1, 64));
}

// Returns sums [K, C] over a sample's rows. row(part, r) adds row r to part [K, C]. Up to 16 rows are summed
// in T, their sums in f64.
template <class T, int K, class AddRow> std::vector<double> sum_rows(const Samples& s, AddRow row) {
  const int64_t width = K * s.C, blocks = blocks_of(s);
  std::vector<double> partials(size_t(blocks * width), 0.0);
  parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    std::vector<T> partial(static_cast<size_t>(width));
    for (int64_t b = first; b < last; ++b) {
      double* sums = partials.data() + b * width;
      const int64_t end = s.rows * (b + 1) / blocks;
      for (int64_t r = s.rows * b / blocks; r < end;) {
        std::fill(partial.begin(), partial.end(), T(0));
        for (const int64_t stop = std::min(end, r + 16); r < stop; ++r) row(partial.data(), r);
        for (int64_t i = 0; i < width; ++i) sums[i] += double(partial[size_t(i)]);
      }
    }
  });
  for (int64_t b = 1; b < blocks; ++b)
    for (int64_t i = 0; i < width; ++i) partials[size_t(i)] += partials[size_t(b * width + i)];
  partials.resize(size_t(width));
  return partials;
}

// sum[c] += d and squares[c] += d^2, with d = x[c] - reference[c].
template <class T>
void add_differences(int64_t C, T* __restrict sum, T* __restrict squares, const T* __restrict x,
                     const T* __restrict reference) {
  for (int64_t c = 0; c < C; ++c) {
    const T d = x[c] - reference[c];
    sum[c] += d, squares[c] += d * d;
  }
}

// Per channel, in f64: sum and squares of x - x0, where x0 is the sample's first row. Up to 16 rows are
// summed in T relative to the first of them (`reference`), then shifted to x0. So for any mean and any
// outlier, the squares exceed sum (x - mean)^2 by at most a factor of the number of rows.
template <class T> struct ChannelStatistics {
  explicit ChannelStatistics(const Samples& s) : sum(size_t(s.C)), squares(size_t(s.C)) {}
  std::vector<double> sum, squares;
  void add_rows(const Samples& s, const T* x, int64_t first, int64_t last) {
    std::vector<T> partial(size_t(2 * s.C));
    for (int64_t r = first; r < last; r += 16) {
      const int64_t stop = std::min(last, r + 16);
      const T* reference = x + r * s.C;
      std::fill(partial.begin(), partial.end(), T(0));
      for (int64_t i = r + 1; i < stop; ++i)
        add_differences(s.C, partial.data(), partial.data() + s.C, x + i * s.C, reference);
      for (int64_t c = 0; c < s.C; ++c) {
        const double offset = double(reference[c]) - double(x[c]), d = double(partial[size_t(c)]);
        sum[size_t(c)] += d + double(stop - r) * offset;
        squares[size_t(c)] += double(partial[size_t(s.C + c)]) + offset * (2 * d + double(stop - r) * offset);
      }
    }
  }
};

// Computes the mean and the biased variance of each group of one sample x.
template <class T> void statistics(const Samples& s, const T* x, double* mean, double* var) {
  const int64_t blocks = blocks_of(s);
  std::vector partials(static_cast<size_t>(blocks), ChannelStatistics<T>(s));
  parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b)
      partials[size_t(b)].add_rows(s, x, s.rows * b / blocks, s.rows * (b + 1) / blocks);
  });
  ChannelStatistics<T>& all = partials[0];
  for (int64_t b = 1; b < blocks; ++b)
    for (size_t c = 0; c < size_t(s.C); ++c)
      all.sum[c] += partials[size_t(b)].sum[c], all.squares[c] += partials[size_t(b)].squares[c];
  // Merges a group's channels by Chan et al.'s parallel variance, relative to x0 of its first channel.
  for (int64_t g = 0; g < s.groups; ++g) {
    const int64_t begin = g * s.per_group, end = begin + s.per_group;
    const auto offset = [&](int64_t c) {
      return all.sum[size_t(c)] / double(s.rows) + double(x[c]) - double(x[begin]);
    };
    double sum = 0, squares = 0;
    for (int64_t c = begin; c < end; ++c) sum += offset(c);
    const double from_first = sum / double(s.per_group);
    for (int64_t c = begin; c < end; ++c) {
      const double channel_sum = all.sum[size_t(c)], delta = offset(c) - from_first;
      squares += all.squares[size_t(c)] - channel_sum * channel_sum / double(s.rows) +
                 double(s.rows) * delta * delta;
    }
    mean[g] = double(x[begin]) + from_first;
    var[g] = squares / s.group_size();
    if (var[g] < 0) var[g] = 0;  // negative by rounding; NaN stays NaN
  }
}

// y = (x - high) * scale + shift per channel. `high` is the mean rounded to T; shift includes the rounding
// error, so that a large mean costs no precision.
template <class T>
void apply_row(int64_t C, T* __restrict y, const T* __restrict x, const T* __restrict high,
               const T* __restrict scale, const T* __restrict shift) {
  for (int64_t c = 0; c < C; ++c) y[c] = (x[c] - high[c]) * scale[c] + shift[c];
}

template <class T> const T* ptr_or_null(const Tensor& t) { return t.defined() ? t.ptr<T>() : nullptr; }

void group_norm_cpu(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                    const Tensor& weight, const Tensor& bias, const GroupNormSpec& spec) {
  dispatch_floating(x.dtype(), "group_norm", [&]<class T>() {
    const Samples s{x, spec};
    const T *w = ptr_or_null<T>(weight), *b = ptr_or_null<T>(bias);
    for_each_sample(s, [&](int64_t n) {
      const T* from = x.ptr<T>() + n * s.rows * s.C;
      T* to = y.ptr<T>() + n * s.rows * s.C;
      double *m = mean.ptr<double>() + n * s.groups, *v = var.ptr<double>() + n * s.groups;
      statistics(s, from, m, v);
      std::vector<T> high(size_t(s.C)), scales(high), shift(high);
      for (int64_t c = 0; c < s.C; ++c) {
        const int64_t g = c / s.per_group;
        const double scale = (w ? double(w[c]) : 1.0) / std::sqrt(v[g] + spec.eps);
        high[size_t(c)] = T(m[g]), scales[size_t(c)] = T(scale);
        shift[size_t(c)] = T((double(T(m[g])) - m[g]) * scale + (b ? double(b[c]) : 0.0));
      }
      parallel_for(0, s.rows, 1 + kGrain / s.C, [&](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r)
          apply_row(s.C, to + r * s.C, from + r * s.C, high.data(), scales.data(), shift.data());
      });
    });
  });
}

// sum[c] += dy[c] and centered_sum[c] += dy[c] * (x[c] - high[c]).
template <class T>
void add_gradients(int64_t C, T* __restrict sum, T* __restrict centered_sum, const T* __restrict dy,
                   const T* __restrict x, const T* __restrict high) {
  for (int64_t c = 0; c < C; ++c) sum[c] += dy[c], centered_sum[c] += dy[c] * (x[c] - high[c]);
}
// y = dy * scale + (x - high) * slope + shift per channel.
template <class T>
void combine_row(int64_t C, T* __restrict y, const T* __restrict dy, const T* __restrict x,
                 const T* __restrict high, const T* __restrict scale, const T* __restrict slope,
                 const T* __restrict shift) {
  for (int64_t c = 0; c < C; ++c) y[c] = dy[c] * scale[c] + (x[c] - high[c]) * slope[c] + shift[c];
}

// dx = (dy w - mean(dy w) - z mean(dy w z)) / std, where z is the normalized x and means are over a group.
void group_norm_backward_cpu(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                             const GroupNormSpec& spec) {
  dispatch_floating(x.dtype(), "group_norm_backward", [&]<class T>() {
    const Samples s{x, spec};
    const T* w = ptr_or_null<T>(weight);
    std::vector<double> dw(size_t(s.N * s.C)), db(size_t(s.N * s.C));  // of each sample
    for_each_sample(s, [&](int64_t n) {
      const int64_t at = n * s.rows * s.C;
      const T *v = x.ptr<T>() + at, *g = dy.ptr<T>() + at;
      const double *m = mean.ptr<double>() + n * s.groups, *variance = var.ptr<double>() + n * s.groups;
      std::vector<T> high(size_t(s.C)), scales(high), slopes(high), shift(high);
      for (int64_t c = 0; c < s.C; ++c) high[size_t(c)] = T(m[c / s.per_group]);
      const auto sums = sum_rows<T, 2>(s, [&](T* part, int64_t r) {
        add_gradients(s.C, part, part + s.C, g + r * s.C, v + r * s.C, high.data());
      });
      for (int64_t group = 0; group < s.groups; ++group) {
        const double inv_std = 1 / std::sqrt(variance[group] + spec.eps);
        const double low = double(T(m[group])) - m[group];  // x - mean = x - high + low
        double total = 0, normal_total = 0;
        const int64_t begin = group * s.per_group, end = begin + s.per_group;
        for (int64_t c = begin; c < end; ++c) {
          const double sum = sums[size_t(c)], normal_sum = (sums[size_t(s.C + c)] + low * sum) * inv_std;
          db[size_t(n * s.C + c)] = sum, dw[size_t(n * s.C + c)] = normal_sum;
          total += sum * (w ? double(w[c]) : 1.0), normal_total += normal_sum * (w ? double(w[c]) : 1.0);
        }
        const double slope = normal_total / s.group_size() * inv_std * inv_std;
        for (int64_t c = begin; c < end; ++c) {
          scales[size_t(c)] = T((w ? double(w[c]) : 1.0) * inv_std);
          slopes[size_t(c)] = T(-slope);
          shift[size_t(c)] = T(-(total / s.group_size() * inv_std + low * slope));
        }
      }
      parallel_for(0, s.rows, 1 + kGrain / s.C, [&](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r)
          combine_row(s.C, dx.ptr<T>() + at + r * s.C, g + r * s.C, v + r * s.C, high.data(), scales.data(),
                      slopes.data(), shift.data());
      });
    });
    for (int64_t c = 0; c < s.C; ++c) {
      double sum = 0, normal_sum = 0;
      for (int64_t n = 0; n < s.N; ++n) sum += db[size_t(n * s.C + c)], normal_sum += dw[size_t(n * s.C + c)];
      dbias.ptr<T>()[c] = T(sum), dweight.ptr<T>()[c] = T(normal_sum);
    }
  });
}

// Adds a, a * d, g, g * d and a * g to five sums per channel, with a = ddx, g = dy and d = x - high.
template <class T>
void add_products(int64_t C, T* __restrict sums, const T* __restrict ddx, const T* __restrict dy,
                  const T* __restrict x, const T* __restrict high) {
  T *sum = sums, *centered = sums + C, *dy_sum = sums + 2 * C, *dy_centered = sums + 3 * C,
    *products = sums + 4 * C;
  for (int64_t c = 0; c < C; ++c) {
    const T a = ddx[c], g = dy[c], d = x[c] - high[c];
    sum[c] += a, centered[c] += a * d, dy_sum[c] += g, dy_centered[c] += g * d, products[c] += a * g;
  }
}

// dx = dy * of_dy + ddx * of_ddx + (x - high) * slope + shift per channel.
template <class T>
void combine_both(int64_t C, T* __restrict dx, const T* __restrict ddx, const T* __restrict dy,
                  const T* __restrict x, const T* __restrict high, const T* __restrict of_ddx,
                  const T* __restrict of_dy, const T* __restrict slope, const T* __restrict shift) {
  for (int64_t c = 0; c < C; ++c)
    dx[c] = dy[c] * of_dy[c] + ddx[c] * of_ddx[c] + (x[c] - high[c]) * slope[c] + shift[c];
}

// The coefficients per channel of the passes of group_norm_double_backward_cpu over one sample.
template <class T> struct DoubleBackward {
  explicit DoubleBackward(int64_t C) {
    for (auto* v : {&high, &scales, &slopes, &shift, &of_dy, &of_ddx, &dx_slopes, &dx_shift})
      v->resize(size_t(C));
  }
  std::vector<T> high, scales, slopes, shift;         // ddy by combine_row
  std::vector<T> of_dy, of_ddx, dx_slopes, dx_shift;  // dx by combine_both
};

// Sets the coefficients of one group, from `sums`, the five sums per channel of add_products, and writes
// dweight of the sample. w, dw and db may be null.
template <class T>
void set_group(const Samples& s, int64_t group, double mean, double variance, const std::vector<double>& sums,
               const T* w, const T* dw, const T* db, DoubleBackward<T>& to, double* dweight) {
  const double r = 1 / std::sqrt(variance + s.spec.eps);
  const double low = double(T(mean)) - mean;  // x - mean = x - high + low
  const int64_t begin = group * s.per_group, end = begin + s.per_group;
  const auto sum_of = [&](int64_t which, int64_t c) { return sums[size_t(which * s.C + c)]; };
  const auto a_z = [&](int64_t c) { return (sum_of(1, c) + low * sum_of(0, c)) * r; };
  const auto dy_z = [&](int64_t c) { return (sum_of(3, c) + low * sum_of(2, c)) * r; };
  double mean_a = 0, mean_az = 0, mean_u = 0, mean_uz = 0, mean_au = 0, mean_q = 0, mean_qz = 0;
  for (int64_t c = begin; c < end; ++c) {
    const double scale = w ? double(w[c]) : 1.0, q = dw ? double(dw[c]) : 0.0;
    mean_a += sum_of(0, c), mean_az += a_z(c);
    mean_u += scale * sum_of(2, c), mean_uz += scale * dy_z(c), mean_au += scale * sum_of(4, c);
    mean_q += q * sum_of(2, c), mean_qz += q * dy_z(c);
  }
  for (double* sum : {&mean_a, &mean_az, &mean_u, &mean_uz, &mean_au, &mean_q, &mean_qz})
    *sum /= s.group_size();
  const double mean_h = mean_q - r * (mean_a * mean_uz + mean_u * mean_az);
  const double mean_hz = mean_qz - 2 * r * mean_az * mean_uz;
  const double of_std = mean_au - mean_a * mean_u - mean_az * mean_uz;
  const double dx_slope = -r * r * (mean_hz + r * of_std);
  for (int64_t c = begin; c < end; ++c) {
    const double scale = w ? double(w[c]) : 1.0, q = dw ? double(dw[c]) : 0.0;
    const double slope = r * (q - scale * r * mean_az);
    to.scales[size_t(c)] = T(scale * r);
    to.slopes[size_t(c)] = T(slope);
    to.shift[size_t(c)] = T(low * slope - scale * r * mean_a + (db ? double(db[c]) : 0.0));
    to.of_dy[size_t(c)] = T(r * (q - r * scale * mean_az));
    to.of_ddx[size_t(c)] = T(-r * r * mean_uz);
    to.dx_slopes[size_t(c)] = T(dx_slope);
    to.dx_shift[size_t(c)] = T(low * dx_slope - r * mean_h);
    dweight[c] = r * (sum_of(4, c) - mean_a * sum_of(2, c) - mean_az * dy_z(c));
  }
}

// With r = 1 / std, z the normalized x, u = dy w, and means over a group, the backward is
//   dx = r (u - mean(u) - z mean(u z)),  dweight = sum(dy z),  dbias = sum(dy).
// With P(v) = v - mean(v) - z mean(v z), and a = ddx, the gradients are
//   ddy = w r P(a) + ddweight z + ddbias
//   dx = r P(ddweight dy - r (a mean(u z) + u mean(a z)))
//        - r^2 z (mean(a u) - mean(a) mean(u) - mean(a z) mean(u z))
//   dweight = sum(dy r P(a)).
// All means follow from the five sums per channel of add_products.
void group_norm_double_backward_cpu(const Tensor& ddy, const Tensor& dx, const Tensor& dweight,
                                    const Tensor& ddx, const Tensor& ddweight, const Tensor& ddbias,
                                    const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                    const Tensor& weight, const GroupNormSpec& spec) {
  dispatch_floating(x.dtype(), "group_norm_double_backward", [&]<class T>() {
    const Samples s{x, spec};
    const T *w = ptr_or_null<T>(weight), *dw = ptr_or_null<T>(ddweight), *db = ptr_or_null<T>(ddbias);
    std::vector<double> dweights(size_t(s.N * s.C));  // of each sample
    for_each_sample(s, [&](int64_t n) {
      const int64_t at = n * s.rows * s.C;
      const T *a = ddx.ptr<T>() + at, *g = dy.ptr<T>() + at, *v = x.ptr<T>() + at;
      const double *m = mean.ptr<double>() + n * s.groups, *variance = var.ptr<double>() + n * s.groups;
      DoubleBackward<T> k(s.C);
      for (int64_t c = 0; c < s.C; ++c) k.high[size_t(c)] = T(m[c / s.per_group]);
      const auto sums = sum_rows<T, 5>(s, [&](T* part, int64_t r) {
        add_products(s.C, part, a + r * s.C, g + r * s.C, v + r * s.C, k.high.data());
      });
      for (int64_t group = 0; group < s.groups; ++group)
        set_group(s, group, m[group], variance[group], sums, w, dw, db, k, dweights.data() + n * s.C);
      parallel_for(0, s.rows, 1 + kGrain / s.C, [&](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r) {
          const int64_t row = r * s.C;
          combine_row(s.C, ddy.ptr<T>() + at + row, a + row, v + row, k.high.data(), k.scales.data(),
                      k.slopes.data(), k.shift.data());
          combine_both(s.C, dx.ptr<T>() + at + row, a + row, g + row, v + row, k.high.data(), k.of_ddx.data(),
                       k.of_dy.data(), k.dx_slopes.data(), k.dx_shift.data());
        }
      });
    });
    for (int64_t c = 0; c < s.C; ++c) {
      double sum = 0;
      for (int64_t n = 0; n < s.N; ++n) sum += dweights[size_t(n * s.C + c)];
      dweight.ptr<T>()[c] = T(sum);
    }
  });
}

template <class T> void add_row(int64_t n, T* __restrict y, const T* __restrict x) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

// y[c] = sum of x[c + d] for d = -before..after, channels outside [0, C) counted as 0. Computed row by row as
// a sum of shifted copies of x.
void channel_window_sum_cpu(const Tensor& y, const Tensor& x, const ChannelWindow& window) {
  dispatch_floating(x.dtype(), "channel_window_sum", [&]<class T>() {
    const int64_t C = x.size(1);
    const int64_t before = std::min(window.before, C), after = std::min(window.after, C);
    parallel_for(0, x.numel() / C, 1 + kGrain / (C * (1 + before + after)), [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const T* from = x.ptr<T>() + r * C;
        T* to = y.ptr<T>() + r * C;
        std::copy_n(from, C, to);
        for (int64_t d = 1; d <= before; ++d) add_row(C - d, to + d, from);
        for (int64_t d = 1; d <= after; ++d) add_row(C - d, to, from + d);
      }
    });
  });
}

}  // namespace

constinit decltype(group_norm_kernel) group_norm_kernel{"group_norm", cpu::flushing<&group_norm_cpu>};
constinit decltype(group_norm_backward_kernel) group_norm_backward_kernel{
    "group_norm_backward", cpu::flushing<&group_norm_backward_cpu>};
constinit decltype(group_norm_double_backward_kernel) group_norm_double_backward_kernel{
    "group_norm_double_backward", cpu::flushing<&group_norm_double_backward_cpu>};
constinit decltype(channel_window_sum_kernel) channel_window_sum_kernel{
    "channel_window_sum", cpu::flushing<&channel_window_sum_cpu>};

}  // namespace gradus::raw
