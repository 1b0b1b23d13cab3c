// Optimizer steps on the CPU: one parallel pass over the elements of all parameters, as if they lay in one
// row, so that many small parameters cost no more than one large one.
#include "gradus/tensor/ops/optim_step.h"

#include <algorithm>
#include <cmath>

#include "gradus/tensor/parallel.h"

namespace gradus::raw {
namespace {

constexpr int64_t kGrain = 1 << 14;

// Calls f(i, begin, end) on parts of tensor i of sizes[i] elements, in parallel over all of them together.
template <class F>
void over_all(const std::vector<int64_t>& sizes, F f) {
  std::vector<int64_t> starts(sizes.size() + 1, 0);
  for (size_t i = 0; i < sizes.size(); ++i) starts[i + 1] = starts[i] + sizes[i];
  parallel_for(0, starts.back(), kGrain, [&](int64_t begin, int64_t end) {
    size_t i =
        static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
    for (; begin < end; begin = starts[++i])
      if (sizes[i]) f(i, begin - starts[i], std::min(end, starts[i + 1]) - starts[i]);
  });
}

template <class F>
void over_items(const std::vector<StepItem>& items, F f) {
  std::vector<int64_t> sizes;
  for (const StepItem& item : items) sizes.push_back(item.param.numel());
  over_all(sizes, [&](size_t i, int64_t begin, int64_t end) { f(items[i], begin, end); });
}

// The loops stand in functions of their own: as parameters, __restrict pointers and plain numbers let the
// compiler turn them into vector code.

template <class T>
void sgd(int64_t n, T* __restrict p, const T* __restrict g, T lr, T sign, T decay) {
  for (int64_t i = 0; i < n; ++i) p[i] -= lr * (sign * g[i] + decay * p[i]);
}

// b = keep b + take d;  p -= lr (direct d + ahead b)
template <class T>
void sgd_momentum(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict b, T lr, T sign, T decay,
                  T keep, T take, T direct, T ahead) {
  for (int64_t i = 0; i < n; ++i) {
    const T d = sign * g[i] + decay * p[i];
    b[i] = keep * b[i] + take * d;
    p[i] -= lr * (direct * d + ahead * b[i]);
  }
}

void sgd_step_cpu(const Tensor& first, const std::vector<StepItem>& items, const SGDStep& o) {
  dispatch_floating(first.dtype(), "sgd_step", [&]<class T>() {
    const T sign = o.maximize ? T(-1) : T(1);
    over_items(items, [&](const StepItem& item, int64_t begin, int64_t end) {
      T* p = item.param.ptr<T>() + begin;
      const T* g = item.grad.ptr<T>() + begin;
      if (o.momentum == 0) return sgd<T>(end - begin, p, g, T(o.lr), sign, T(o.weight_decay));
      // A new buffer is zero: the first gradient enters it as it is.
      const bool fresh = item.step == 1;
      sgd_momentum<T>(end - begin, p, g, item.state[0].ptr<T>() + begin, T(o.lr), sign, T(o.weight_decay),
                      fresh ? T(0) : T(o.momentum), fresh ? T(1) : T(1 - o.dampening),
                      o.nesterov ? T(1) : T(0), o.nesterov ? T(o.momentum) : T(1));
    });
  });
}

template <class T>
struct AdamNumbers {
  T sign, decay, shrink, b1, c1, b2, c2, rate, root, eps;
};

template <class T, bool amsgrad>
void adam(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v,
          T* __restrict top, const AdamNumbers<T> k) {
  for (int64_t i = 0; i < n; ++i) {
    const T d = k.sign * g[i] + k.decay * p[i];
    m[i] = k.b1 * m[i] + k.c1 * d;
    v[i] = k.b2 * v[i] + k.c2 * d * d;
    T second = v[i];
    if constexpr (amsgrad) second = top[i] = top[i] < second ? second : top[i];
    p[i] = k.shrink * p[i] - k.rate * m[i] / (std::sqrt(second) * k.root + k.eps);
  }
}

void adam_step_cpu(const Tensor& first, const std::vector<StepItem>& items, const AdamStep& o) {
  dispatch_floating(first.dtype(), "adam_step", [&]<class T>() {
    over_items(items, [&](const StepItem& item, int64_t begin, int64_t end) {
      const double t = static_cast<double>(item.step);
      const AdamNumbers<T> k = {
          .sign = o.maximize ? T(-1) : T(1),
          .decay = o.decoupled ? T(0) : T(o.weight_decay),
          .shrink = o.decoupled ? T(1 - o.lr * o.weight_decay) : T(1),
          .b1 = T(o.beta1),
          .c1 = T(1 - o.beta1),
          .b2 = T(o.beta2),
          .c2 = T(1 - o.beta2),
          .rate = T(o.lr / (1 - std::pow(o.beta1, t))),
          .root = T(1 / std::sqrt(1 - std::pow(o.beta2, t))),
          .eps = T(o.eps),
      };
      T* p = item.param.ptr<T>() + begin;
      const T* g = item.grad.ptr<T>() + begin;
      T *m = item.state[0].ptr<T>() + begin, *v = item.state[1].ptr<T>() + begin;
      if (o.amsgrad)
        adam<T, true>(end - begin, p, g, m, v, item.state[2].ptr<T>() + begin, k);
      else
        adam<T, false>(end - begin, p, g, m, v, nullptr, k);
    });
  });
}

template <class T>
void adadelta(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict v, T* __restrict u, T lr,
              T sign, T decay, T rho, T fresh, T eps) {
  for (int64_t i = 0; i < n; ++i) {
    const T d = sign * g[i] + decay * p[i];
    v[i] = rho * v[i] + fresh * d * d;
    const T delta = std::sqrt((u[i] + eps) / (v[i] + eps)) * d;
    u[i] = rho * u[i] + fresh * delta * delta;
    p[i] -= lr * delta;
  }
}

void adadelta_step_cpu(const Tensor& first, const std::vector<StepItem>& items, const AdadeltaStep& o) {
  dispatch_floating(first.dtype(), "adadelta_step", [&]<class T>() {
    over_items(items, [&](const StepItem& item, int64_t begin, int64_t end) {
      adadelta<T>(end - begin, item.param.ptr<T>() + begin, item.grad.ptr<T>() + begin,
                  item.state[0].ptr<T>() + begin, item.state[1].ptr<T>() + begin, T(o.lr),
                  o.maximize ? T(-1) : T(1), T(o.weight_decay), T(o.rho), T(1 - o.rho), T(o.eps));
    });
  });
}

// Blocks of fixed size are added in fixed order: the same sum for any number of threads.
void norm_of_cpu(const Tensor& out, const std::vector<Tensor>& tensors, double p) {
  constexpr int64_t kBlock = 1 << 14;
  struct Block {
    size_t tensor;
    int64_t begin, end;
  };
  std::vector<Block> blocks;
  for (size_t t = 0; t < tensors.size(); ++t)
    for (int64_t b = 0; b < tensors[t].numel(); b += kBlock)
      blocks.push_back({t, b, std::min(b + kBlock, tensors[t].numel())});
  std::vector<double> partial(blocks.size());
  const bool largest = std::isinf(p);
  parallel_for(0, static_cast<int64_t>(blocks.size()), 2, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const Block& b = blocks[static_cast<size_t>(i)];
      dispatch_floating(tensors[b.tensor].dtype(), "norm_of", [&]<class T>() {
        const T* x = tensors[b.tensor].ptr<T>();
        double sum = 0;
        if (largest)
          for (int64_t k = b.begin; k < b.end; ++k) {
            const double a = std::abs(double(x[k]));
            sum = a > sum || std::isnan(a) ? a : sum;  // NaN stays: nothing compares greater
          }
        else if (p == 2)
          for (int64_t k = b.begin; k < b.end; ++k) sum += double(x[k]) * double(x[k]);
        else if (p == 1)
          for (int64_t k = b.begin; k < b.end; ++k) sum += std::abs(double(x[k]));
        else
          for (int64_t k = b.begin; k < b.end; ++k) sum += std::pow(std::abs(double(x[k])), p);
        partial[static_cast<size_t>(i)] = sum;
      });
    }
  });
  double total = 0;
  for (double s : partial) total = !largest ? total + s : s > total || std::isnan(s) ? s : total;
  if (!largest) total = p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
  dispatch_floating(out.dtype(), "norm_of", [&]<class T>() { *out.ptr<T>() = static_cast<T>(total); });
}

// Calls f(pointer, count) on parts of the tensors in parallel.
template <class F>
void over_tensors(const char* op, const std::vector<Tensor>& tensors, F f) {
  std::vector<int64_t> sizes;
  for (const Tensor& t : tensors) sizes.push_back(t.numel());
  over_all(sizes, [&](size_t i, int64_t begin, int64_t end) {
    dispatch_floating(tensors[i].dtype(), op,
                      [&]<class T>() { f(tensors[i].ptr<T>() + begin, end - begin); });
  });
}

void clip_by_norm_cpu(const Tensor& norm, const std::vector<Tensor>& tensors, double max_norm) {
  const double total =
      dispatch_floating(norm.dtype(), "clip_by_norm_", [&]<class T>() { return double(*norm.ptr<T>()); });
  const double scale = max_norm / (total + 1e-6);
  if (scale >= 1) return;
  over_tensors("clip_by_norm_", tensors, [scale]<class T>(T* x, int64_t n) {
    const T factor = T(scale);
    for (int64_t i = 0; i < n; ++i) x[i] *= factor;
  });
}

void clip_by_value_cpu(const Tensor&, const std::vector<Tensor>& tensors, double limit) {
  over_tensors("clip_by_value_", tensors, [limit]<class T>(T* x, int64_t n) {
    const T low = T(-limit), high = T(limit);
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] < low ? low : x[i] > high ? high : x[i];  // NaN stays
  });
}

const RegisterKernel sgd_registration(sgd_step_kernel, DeviceType::kCPU, &sgd_step_cpu);
const RegisterKernel adam_registration(adam_step_kernel, DeviceType::kCPU, &adam_step_cpu);
const RegisterKernel adadelta_registration(adadelta_step_kernel, DeviceType::kCPU, &adadelta_step_cpu);
const RegisterKernel norm_registration(norm_of_kernel, DeviceType::kCPU, &norm_of_cpu);
const RegisterKernel by_norm_registration(clip_by_norm_kernel, DeviceType::kCPU, &clip_by_norm_cpu);
const RegisterKernel by_value_registration(clip_by_value_kernel, DeviceType::kCPU, &clip_by_value_cpu);

}  // namespace
}  // namespace gradus::raw
