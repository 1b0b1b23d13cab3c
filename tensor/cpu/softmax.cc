// Softmax, log-softmax and their gradients on the CPU.
#include <Eigen/Core>
#include <limits>

#include "gradus/tensor/ops/softmax.h"
#include "gradus/tensor/parallel.h"

namespace gradus::raw {
namespace {

constexpr int64_t kGrain = 8192;  // elements; each costs an exponential
constexpr int64_t kTile = 256;

template <class T>
using Row = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>;
template <class T>
using ConstRow = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>;
template <class T>
using Buffer = Eigen::Array<T, Eigen::Dynamic, 1, 0, kTile, 1>;  // on the stack

// Calls f(at, width) for consecutive pieces of [0, n).
template <class F>
void for_tiles(int64_t n, F&& f) {
  for (int64_t at = 0; at < n; at += kTile) f(at, std::min(kTile, n - at));
}

template <class T>
void softmax_row(T* y, const T* x, int64_t n, bool log) {
  const ConstRow<T> xs(x, n);
  Row<T> ys(y, n);
  const T top = xs.maxCoeff();
  double sum = 0;
  if (log) {
    for_tiles(n, [&](int64_t at, int64_t width) {
      sum += static_cast<double>((xs.segment(at, width) - top).exp().sum());
    });
    ys = (xs - top) - static_cast<T>(std::log(sum));
    return;
  }
  for_tiles(n, [&](int64_t at, int64_t width) {
    auto part = ys.segment(at, width);
    part = (xs.segment(at, width) - top).exp();
    sum += static_cast<double>(part.sum());
  });
  ys *= static_cast<T>(1 / sum);
}

// `width` neighbouring columns of an [n, inner] block.
template <class T>
void softmax_columns(T* y, const T* x, int64_t n, int64_t inner, int64_t width, bool log) {
  Buffer<T> top = Buffer<T>::Constant(width, -std::numeric_limits<T>::infinity()),
            sum = Buffer<T>::Zero(width);
  for (int64_t i = 0; i < n; ++i) top = top.max(ConstRow<T>(x + i * inner, width));
  for (int64_t i = 0; i < n; ++i) {
    Row<T> ys(y + i * inner, width);
    ys = ConstRow<T>(x + i * inner, width) - top;
    if (log) {
      sum += ys.exp();
    } else {
      ys = ys.exp();
      sum += ys;
    }
  }
  const Buffer<T> last = log ? Buffer<T>(sum.log()) : Buffer<T>(sum.inverse());
  for (int64_t i = 0; i < n; ++i) {
    Row<T> ys(y + i * inner, width);
    log ? void(ys -= last) : void(ys *= last);
  }
}

template <class T>
void softmax_backward_row(T* dx, const T* dy, const T* y, int64_t n, bool log) {
  const ConstRow<T> dys(dy, n), ys(y, n);
  double sum = 0;
  for_tiles(n, [&](int64_t at, int64_t width) {
    const auto g = dys.segment(at, width);
    sum += static_cast<double>(log ? g.sum() : (g * ys.segment(at, width)).sum());
  });
  const T s = static_cast<T>(sum);
  Row<T> out(dx, n);
  log ? void(out = dys - ys.exp() * s) : void(out = ys * (dys - s));
}

template <class T>
void softmax_backward_columns(T* dx, const T* dy, const T* y, int64_t n, int64_t inner, int64_t width, bool log) {
  Buffer<T> sum = Buffer<T>::Zero(width);
  for (int64_t i = 0; i < n; ++i) {
    const ConstRow<T> dys(dy + i * inner, width), ys(y + i * inner, width);
    log ? void(sum += dys) : void(sum += dys * ys);
  }
  for (int64_t i = 0; i < n; ++i) {
    const ConstRow<T> dys(dy + i * inner, width), ys(y + i * inner, width);
    Row<T> out(dx + i * inner, width);
    log ? void(out = dys - ys.exp() * sum) : void(out = ys * (dys - sum));
  }
}

// Calls row(offset) for each softmax along the innermost axis, or columns(offset, width) for tiles of
// neighbours.
template <class Row, class Columns>
void for_each_softmax(int64_t numel, int64_t n, int64_t inner, Row&& row, Columns&& columns) {
  if (numel == 0) return;
  const int64_t outer = numel / (n * inner);
  if (inner == 1) {
    parallel_for(0, outer, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) row(i * n);
    });
    return;
  }
  const int64_t width = std::min(inner, kTile), tiles = (inner + width - 1) / width;
  parallel_for(0, outer * tiles, std::max<int64_t>(1, kGrain / (n * width)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i % tiles * width;
      columns(i / tiles * n * inner + at, std::min(width, inner - at));
    }
  });
}

void softmax_cpu(const Tensor& y, const Tensor& x, int64_t n, int64_t inner, bool log) {
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    T* to = y.ptr<T>();
    const T* from = x.ptr<T>();
    for_each_softmax(
        x.numel(), n, inner, [&](int64_t at) { softmax_row(to + at, from + at, n, log); },
        [&](int64_t at, int64_t width) { softmax_columns(to + at, from + at, n, inner, width, log); });
  });
}

void softmax_backward_cpu(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t n, int64_t inner,
                      bool log) {
  dispatch_floating(y.dtype(), "softmax_backward", [&]<class T>() {
    T* to = dx.ptr<T>();
    const T *g = dy.ptr<T>(), *v = y.ptr<T>();
    for_each_softmax(
        y.numel(), n, inner, [&](int64_t at) { softmax_backward_row(to + at, g + at, v + at, n, log); },
        [&](int64_t at, int64_t width) {
          softmax_backward_columns(to + at, g + at, v + at, n, inner, width, log);
        });
  });
}

const RegisterKernel kSoftmax(softmax_kernel, DeviceType::kCPU, &softmax_cpu);
const RegisterKernel kSoftmaxGrad(softmax_backward_kernel, DeviceType::kCPU, &softmax_backward_cpu);

}  // namespace
}  // namespace gradus::raw
