// CPU kernels of torch.nn.functional.cross_entropy and nll_loss with class indices as targets, and their gradient.
// x[outer, classes, inner] holds logits, y[samples] the targets, w[classes] the class weights (undefined: 1);
// samples = outer * inner. With p = softmax(x) over the classes:
//   a_i[c] = w[c] * ((1 - smoothing) * [c == y_i] + smoothing / classes)
//   loss_i = -sum_c a_i[c] * log p_i[c]
//   dx_i[c] = scale_i * (p_i[c] * sum_k a_i[k] - a_i[c]);  scale_i: dy_i, dy for the sum, dy / total for the mean
// loss_i and dx_i are 0 for y_i == ignore_index; total = sum_i w[y_i] over the other samples. The forward kernel
// saves stats[i] = {m, log(sum_c exp(x_i[c] - m))}, m = max_c x_i[c], for the gradient. For nll_loss, x holds
// log p, dx_i = -scale_i * a_i, and `stats` is undefined.
// All tensors are dense; y is i64, the others are f32 or f64. Samples are divided among threads. A target outside
// [0, classes) is an IndexError.
#include "gradus/tensor/ops/losses/cross_entropy.h"
#include "gradus/tensor/kernel.h"

#include <Eigen/Core>
#include <cmath>
#include <numeric>
#include <vector>

#include "gradus/tensor/ops/value_errors.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

// The logits of one sample (or their gradients): `classes` elements with a stride of `inner` elements.
template <class T> using Scores = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>, 0, Eigen::InnerStride<>>;
template <class T> using DenseScores = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>;

// Calls f with the Scores of sample number `sample` in the array x, or with DenseScores, which Eigen vectorizes,
// if the stride is 1.
template <class T, class F> void with_scores(T* x, int64_t sample, const CrossEntropySpec& s, F f) {
  if (s.inner == 1) return f(DenseScores<T>(x + sample * s.classes, s.classes));
  f(Scores<T>(x + sample / s.inner * s.classes * s.inner + sample % s.inner, s.classes,
              Eigen::InnerStride<>(s.inner)));
}

// Returns the grain of parallel_for: more samples than this are divided among threads.
int64_t grain(const CrossEntropySpec& s) { return std::max<int64_t>(1, 8192 / s.classes); }

void check_target(int64_t y, int64_t sample, const CrossEntropySpec& s) {
  if (y < 0 || y >= s.classes)
    throw_invalid_class(s.log_probs ? "nll_loss" : "cross_entropy", y, sample, s.classes);
}

void cross_entropy_cpu(const Tensor& loss, const Tensor& stats, const Tensor& total, const Tensor& x,
                       const Tensor& target, const Tensor& weight, const CrossEntropySpec& s) {
  dispatch_floating(x.dtype(), "cross_entropy", [&]<class T>() {
    const int64_t samples = target.numel();
    const int64_t* y = target.ptr<int64_t>();
    const T* w = weight.defined() ? weight.ptr<T>() : nullptr;
    T* st = stats.defined() ? stats.ptr<T>() : nullptr;
    const double smooth = s.smoothing / double(s.classes);
    std::vector<double> losses(static_cast<size_t>(samples));
    parallel_for(0, samples, grain(s), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (y[i] == s.ignore_index) {
          if (st) st[2 * i] = st[2 * i + 1] = 0;
          continue;
        }
        check_target(y[i], i, s);
        with_scores(x.ptr<T>(), i, s, [&](const auto& scores) {
          // -log p_c = shift - (x_c - largest), with shift = log(sum(exp(x - largest)))
          T largest = 0, shift = 0;
          if (st) {
            largest = scores.maxCoeff();
            shift = std::log((scores - largest).exp().sum());
            st[2 * i] = largest, st[2 * i + 1] = shift;
          }
          const auto nll = [&](int64_t c) { return double(shift - (scores[c] - largest)); };
          double sum = (1 - s.smoothing) * (w ? double(w[y[i]]) : 1.0) * nll(y[i]);
          if (smooth != 0)
            for (int64_t c = 0; c < s.classes; ++c) sum += smooth * (w ? double(w[c]) : 1.0) * nll(c);
          losses[static_cast<size_t>(i)] = sum;
        });
      }
    });
    // One thread adds the losses in order, so the sum does not depend on the number of threads.
    double sum = 0, total_weight = 0;
    for (int64_t i = 0; i < samples; ++i) {
      sum += losses[static_cast<size_t>(i)];
      if (y[i] != s.ignore_index) total_weight += w ? double(w[y[i]]) : 1.0;
    }
    *total.ptr<T>() = T(total_weight);  // 0 if all samples are ignored: the mean is NaN, as in PyTorch
    if (s.reduction == Reduction::kNone)
      for (int64_t i = 0; i < samples; ++i) loss.ptr<T>()[i] = T(losses[static_cast<size_t>(i)]);
    else
      *loss.ptr<T>() = T(s.reduction == Reduction::kMean ? sum / total_weight : sum);
  });
}

void cross_entropy_grad_cpu(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                            const Tensor& weight, const Tensor& stats, const Tensor& total,
                            const CrossEntropySpec& s) {
  dispatch_floating(x.dtype(), "cross_entropy_grad", [&]<class T>() {
    const int64_t* y = target.ptr<int64_t>();
    const T* w = weight.defined() ? weight.ptr<T>() : nullptr;
    const T* st = stats.defined() ? stats.ptr<T>() : nullptr;
    const T* g = dy.ptr<T>();
    const T inv_total = s.reduction == Reduction::kMean ? T(1) / *total.ptr<T>() : T(1);
    const T smooth = T(s.smoothing / double(s.classes));
    T weight_sum = T(s.classes);
    if (w) weight_sum = std::accumulate(w, w + s.classes, T(0));
    parallel_for(0, target.numel(), grain(s), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        with_scores(dx.ptr<T>(), i, s, [&](auto d) {
          if (y[i] == s.ignore_index) {
            d.setZero();
            return;
          }
          check_target(y[i], i, s);
          const T scale = (s.reduction == Reduction::kNone ? g[i] : *g) * inv_total;
          const T target_weight = T(1 - s.smoothing) * (w ? w[y[i]] : T(1));
          if (st)
            with_scores(x.ptr<T>(), i, s, [&](const auto& scores) {
              // p * sum_k a[k]
              d = (scores - st[2 * i] - st[2 * i + 1]).exp() *
                  (scale * (target_weight + smooth * weight_sum));
            });
          else
            d.setZero();
          d[y[i]] -= scale * target_weight;
          if (smooth != 0)
            for (int64_t c = 0; c < s.classes; ++c) d[c] -= scale * smooth * (w ? w[c] : T(1));
        });
    });
  });
}

}  // namespace

constinit decltype(cross_entropy_kernel) cross_entropy_kernel{"cross_entropy", &cross_entropy_cpu};
constinit decltype(cross_entropy_grad_kernel) cross_entropy_grad_kernel{"cross_entropy_grad",
                                                                        &cross_entropy_grad_cpu};

}  // namespace gradus::raw
