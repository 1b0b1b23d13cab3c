// Batch normalisation on the CPU: oneDNN in f32, loops in f64, which also check the former. Channels are
// innermost, so an image is a matrix [rows, C] and a statistic is a sum over its rows; the loops sum over
// blocks of rows that do not depend on the number of threads.
#include "gradus/tensor/cpu/norm_reference.h"

#include <bit>
#include <cmath>
#include <vector>

#include "gradus/tensor/cpu/onednn.h"
#include "gradus/tensor/parallel.h"

namespace gradus {
namespace {

struct Rows {
  explicit Rows(const Tensor& x) : C(x.size(1)), count(x.numel() / C) {}
  int64_t C, count;
};

// Returns sums over all rows of what add(sums, first_row, last_row) adds to its K * C sums.
template <class Add>
std::vector<double> sum_rows(const Rows& rows, int K, Add add) {
  const int64_t width = K * rows.C;
  const int64_t blocks = std::clamp<int64_t>(rows.count * rows.C / 16384, 1, 64);
  std::vector<double> parts(blocks * width, 0.0);
  parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b)
      add(parts.data() + b * width, rows.count * b / blocks, rows.count * (b + 1) / blocks);
  });
  for (int64_t b = 1; b < blocks; ++b)
    for (int64_t i = 0; i < width; ++i) parts[i] += parts[b * width + i];
  parts.resize(width);
  return parts;
}

// Adds rows [first, last) to `sums`: row(part, r) adds row r to `part`, a few rows in T, so that they go
// through vector registers, before their sum is added in double.
template <class T, class Row>
void add_rows(double* sums, int64_t width, int64_t first, int64_t last, Row row) {
  std::vector<T> part(width);
  for (int64_t r = first; r < last;) {
    std::fill(part.begin(), part.end(), T(0));
    for (const int64_t stop = std::min(last, r + 16); r < stop; ++r) row(part.data(), r);
    for (int64_t i = 0; i < width; ++i) sums[i] += part[i];
  }
}

// y = (x - mean) * scale + bias, by rows.
template <class T>
void normalise(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
               const Tensor& bias, double eps) {
  const Rows rows(x);
  const int64_t C = rows.C;
  std::vector<T> scale(C), shift(C, T(0));
  for (int64_t c = 0; c < C; ++c) {
    scale[c] = T((weight.defined() ? weight.ptr<T>()[c] : 1.0) / std::sqrt(var.ptr<T>()[c] + eps));
    if (bias.defined()) shift[c] = bias.ptr<T>()[c];
  }
  parallel_for(0, rows.count, 1 + 16384 / C, [&](int64_t first, int64_t last) {
    const T *m = mean.ptr<T>(), *s = scale.data(), *b = shift.data();
    for (int64_t r = first; r < last; ++r) {
      const T* __restrict from = x.ptr<T>() + r * C;
      T* __restrict to = y.ptr<T>() + r * C;
      for (int64_t c = 0; c < C; ++c) to[c] = (from[c] - m[c]) * s[c] + b[c];
    }
  });
}

// mean and m2, in two passes. The first sums differences from the first row: a large mean costs no digits.
template <class T>
void statistics(const Tensor& x, std::vector<double>& mean, std::vector<double>& m2) {
  const Rows rows(x);
  const int64_t C = rows.C;
  const T* values = x.ptr<T>();
  mean = sum_rows(rows, 1, [&](double* s, int64_t first, int64_t last) {
    add_rows<T>(s, C, first, last, [&](T* part, int64_t r) {
      const T* v = values + r * C;
      for (int64_t c = 0; c < C; ++c) part[c] += v[c] - values[c];
    });
  });
  std::vector<T> rounded(C);
  for (int64_t c = 0; c < C; ++c) rounded[c] = T(mean[c] = values[c] + mean[c] / rows.count);
  m2 = sum_rows(rows, 1, [&, about = rounded.data()](double* s, int64_t first, int64_t last) {
    add_rows<T>(s, C, first, last, [&](T* part, int64_t r) {
      const T* v = values + r * C;
      for (int64_t c = 0; c < C; ++c) part[c] += (v[c] - about[c]) * (v[c] - about[c]);
    });
  });
  // About the mean itself.
  for (int64_t c = 0; c < C; ++c)
    m2[c] = std::max(0.0, m2[c] - rows.count * (rounded[c] - mean[c]) * (rounded[c] - mean[c]));
}

void batch_statistics_cpu(const Tensor& mean, const Tensor& m2, const Tensor& x) {
  dispatch_floating(x.dtype(), "batch_statistics", [&]<class T>() {
    std::vector<double> m, s;
    statistics<T>(x, m, s);
    std::copy(m.begin(), m.end(), mean.ptr<double>());
    std::copy(s.begin(), s.end(), m2.ptr<double>());
  });
}

template <class T>
void add_affine_row(int64_t C, T* __restrict to, const T* __restrict x, const T* __restrict mean,
                    const T* __restrict offset, const T* __restrict slope) {
  for (int64_t c = 0; c < C; ++c) to[c] += offset[c] + (x[c] - mean[c]) * slope[c];
}

void batch_statistics_backward_cpu(const Tensor& dx, const Tensor& add, const Tensor& x, const Tensor& mean,
                                   const Tensor& offset, const Tensor& slope) {
  dispatch_floating(x.dtype(), "batch_statistics_backward", [&]<class T>() {
    const Rows rows(x);
    const int64_t C = rows.C;
    parallel_for(0, rows.count, 1 + 16384 / C, [&](int64_t first, int64_t last) {
      const T *m = mean.ptr<T>(), *a = offset.ptr<T>(), *b = slope.ptr<T>();
      for (int64_t r = first; r < last; ++r) {
        const T* __restrict v = x.ptr<T>() + r * C;
        T* __restrict to = dx.ptr<T>() + r * C;
        if (add.defined() && add.raw_ptr() == dx.raw_ptr()) {
          add_affine_row(C, to, v, m, a, b);
        } else if (add.defined()) {
          const T* __restrict g = add.ptr<T>() + r * C;
          for (int64_t c = 0; c < C; ++c) to[c] = g[c] + a[c] + (v[c] - m[c]) * b[c];
        } else {
          for (int64_t c = 0; c < C; ++c) to[c] = a[c] + (v[c] - m[c]) * b[c];
        }
      }
    });
  });
}

template <class T>
void apply_backward_row(int64_t C, T* __restrict dx, T* __restrict sum, T* __restrict centred_sum,
                        const T* __restrict dy, const T* __restrict x, const T* __restrict mean,
                        const T* __restrict scale) {
  for (int64_t c = 0; c < C; ++c) {
    sum[c] += dy[c];
    centred_sum[c] += dy[c] * (x[c] - mean[c]);
    dx[c] = dy[c] * scale[c];
  }
}

void batch_norm_apply_backward_cpu(const Tensor& dx, const Tensor& sum, const Tensor& centred_sum,
                                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                   const Tensor& weight, double eps) {
  dispatch_floating(x.dtype(), "batch_norm_apply_backward", [&]<class T>() {
    const Rows rows(x);
    const int64_t C = rows.C;
    const T *values = x.ptr<T>(), *grads = dy.ptr<T>(), *m = mean.ptr<T>();
    std::vector<T> scale(C);
    for (int64_t c = 0; c < C; ++c)
      scale[c] = T((weight.defined() ? weight.ptr<T>()[c] : 1.0) / std::sqrt(var.ptr<T>()[c] + eps));
    const auto sums = sum_rows(rows, 2, [&](double* s, int64_t first, int64_t last) {
      add_rows<T>(s, 2 * C, first, last, [&](T* part, int64_t r) {
        apply_backward_row(C, dx.ptr<T>() + r * C, part, part + C, grads + r * C, values + r * C, m,
                           scale.data());
      });
    });
    for (int64_t c = 0; c < C; ++c) {
      sum.ptr<T>()[c] = T(sums[c]);
      centred_sum.ptr<T>()[c] = T(sums[C + c]);
    }
  });
}

void batch_norm_apply_cpu(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var,
                          const Tensor& weight, const Tensor& bias, double eps) {
  dispatch_floating(x.dtype(), "batch_norm",
                    [&]<class T>() { normalise<T>(y, x, mean, var, weight, bias, eps); });
}

}  // namespace

void batch_norm_reference(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                          const Tensor& weight, const Tensor& bias, double eps) {
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    const Rows rows(x);
    std::vector<double> m, m2;
    statistics<T>(x, m, m2);
    for (int64_t c = 0; c < rows.C; ++c) mean.ptr<T>()[c] = T(m[c]), var.ptr<T>()[c] = T(m2[c] / rows.count);
    normalise<T>(y, x, mean, var, weight, bias, eps);
  });
}

void batch_norm_backward_reference(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                   const Tensor& weight, double eps) {
  dispatch_floating(x.dtype(), "batch_norm_backward", [&]<class T>() {
    const Rows rows(x);
    const int64_t C = rows.C;
    const T *values = x.ptr<T>(), *grads = dy.ptr<T>(), *m = mean.ptr<T>();
    const auto sums = sum_rows(rows, 2, [&](double* __restrict s, int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r)
        for (int64_t c = 0; c < C; ++c) {
          s[c] += grads[r * C + c];
          s[C + c] += grads[r * C + c] * (values[r * C + c] - m[c]);
        }
    });
    // dx = scale * (dy - mean(dy) - (x - mean) * slope)
    std::vector<T> scale(C), offset(C), slope(C);
    for (int64_t c = 0; c < C; ++c) {
      const double inv_std = 1 / std::sqrt(var.ptr<T>()[c] + eps);
      dbias.ptr<T>()[c] = T(sums[c]);
      dweight.ptr<T>()[c] = T(sums[C + c] * inv_std);
      scale[c] = T((weight.defined() ? weight.ptr<T>()[c] : 1.0) * inv_std);
      offset[c] = T(sums[c] / rows.count);
      slope[c] = T(sums[C + c] * inv_std * inv_std / rows.count);
    }
    parallel_for(0, rows.count, 1 + 16384 / C, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        T* __restrict to = dx.ptr<T>() + r * C;
        const T *g = grads + r * C, *v = values + r * C;
        for (int64_t c = 0; c < C; ++c) to[c] = scale[c] * (g[c] - offset[c] - (v[c] - m[c]) * slope[c]);
      }
    });
  });
}

namespace {

using onednn::Desc;

onednn::PlanKey key_of(const char* kind, const Tensor& x, double eps) {
  onednn::PlanKey key(kind);
  key.add(x.size(0)).add(x.size(1)).add(x.numel()).add(std::bit_cast<int64_t>(eps));
  return key;
}

dnnl::batch_normalization_forward::primitive_desc forward_of(const Tensor& x, double eps) {
  using dnnl::normalization_flags;
  const Desc image({x.size(0), x.size(1), x.numel() / (x.size(0) * x.size(1)), 1},
                   dnnl::memory::data_type::f32, dnnl::memory::format_tag::nhwc);
  return {{dnnl::prop_kind::forward_training, image, float(eps),
           normalization_flags::use_scale | normalization_flags::use_shift},
          onednn::user_scratchpad(),
          onednn::engine()};
}

template <class PrimitiveDesc>
onednn::Plan plan_of(const PrimitiveDesc& pd, const Tensor& x, const dnnl::primitive& primitive) {
  onednn::Plan p;
  p.primitive = primitive;
  p.src = p.dst = pd.src_desc();
  p.weights = Desc({x.size(1)}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::x);
  p.scratchpad = pd.scratchpad_desc();
  return p;
}

// t, or `value` for each of n channels.
Tensor or_filled(const Tensor& t, int64_t n, float value) {
  if (t.defined()) return t;
  Tensor filled = empty({n});
  std::fill_n(filled.ptr<float>(), n, value);
  return filled;
}

void batch_norm_cpu(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                    const Tensor& weight, const Tensor& bias, double eps) {
  if (x.dtype() != DType::kF32) return batch_norm_reference(y, mean, var, x, weight, bias, eps);
  static const char kind[] = "batch_norm";
  const auto plan = onednn::plan_for(key_of(kind, x, eps), [&] {
    const auto pd = forward_of(x, eps);
    return plan_of(pd, x, dnnl::batch_normalization_forward(pd));
  });
  const Tensor scale = or_filled(weight, x.size(1), 1), shift = or_filled(bias, x.size(1), 0);
  onednn::run(*plan, {{DNNL_ARG_SRC, onednn::memory(plan->src, x)},
                      {DNNL_ARG_SCALE, onednn::memory(plan->weights, scale)},
                      {DNNL_ARG_SHIFT, onednn::memory(plan->weights, shift)},
                      {DNNL_ARG_MEAN, onednn::memory(plan->weights, mean)},
                      {DNNL_ARG_VARIANCE, onednn::memory(plan->weights, var)},
                      {DNNL_ARG_DST, onednn::memory(plan->dst, y)}});
}

void batch_norm_backward_cpu(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                             const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                             double eps) {
  if (x.dtype() != DType::kF32)
    return batch_norm_backward_reference(dx, dweight, dbias, dy, x, mean, var, weight, eps);
  static const char kind[] = "batch_norm_backward";
  const auto plan = onednn::plan_for(key_of(kind, x, eps), [&] {
    const auto forward = forward_of(x, eps);
    using dnnl::normalization_flags;
    const dnnl::batch_normalization_backward::primitive_desc pd(
        {dnnl::prop_kind::backward, forward.src_desc(), forward.src_desc(), float(eps),
         normalization_flags::use_scale | normalization_flags::use_shift},
        onednn::user_scratchpad(), onednn::engine(), forward);
    return plan_of(pd, x, dnnl::batch_normalization_backward(pd));
  });
  const Tensor scale = or_filled(weight, x.size(1), 1), shift = or_filled({}, x.size(1), 0);
  onednn::run(*plan, {{DNNL_ARG_SRC, onednn::memory(plan->src, x)},
                      {DNNL_ARG_DIFF_DST, onednn::memory(plan->dst, dy)},
                      {DNNL_ARG_SCALE, onednn::memory(plan->weights, scale)},
                      {DNNL_ARG_SHIFT, onednn::memory(plan->weights, shift)},
                      {DNNL_ARG_MEAN, onednn::memory(plan->weights, mean)},
                      {DNNL_ARG_VARIANCE, onednn::memory(plan->weights, var)},
                      {DNNL_ARG_DIFF_SRC, onednn::memory(plan->src, dx)},
                      {DNNL_ARG_DIFF_SCALE, onednn::memory(plan->weights, dweight)},
                      {DNNL_ARG_DIFF_SHIFT, onednn::memory(plan->weights, dbias)}});
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
