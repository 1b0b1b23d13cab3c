// CPU kernels of upfirdn2d (upsample with zeros, apply an FIR filter, downsample; StyleGAN) and of the gradient of
// its filter; the formula is at UpfirdnGeometry. Only input pixels are visited, not the inserted zeros: an output
// pixel is a weighted sum of input pixels of C adjacent channels. Images are channels-last, filters
// row-major, all f32 or f64 of one dtype and of shapes that the callers (tensor/ops/images/upfirdn.cc) check.
#include "gradus/tensor/ops/images/upfirdn.h"
#include "gradus/tensor/kernel.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

// Along one axis: an input position and the index of the filter tap by which its pixels are multiplied.
struct AxisTap {
  int64_t input, tap;
};

// Returns the terms of the sum of each output position along an axis. `flipped`: UpfirdnGeometry::flipped.
std::vector<std::vector<AxisTap>> axis_taps(int64_t in, int64_t out, int64_t kernel, int64_t up, int64_t down,
                                            int64_t padding, bool flipped) {
  std::vector<std::vector<AxisTap>> all(static_cast<size_t>(out));
  for (int64_t p = 0; p < out; ++p)
    for (int64_t i = 0; i < kernel; ++i) {
      const int64_t u = p * down + i - padding;
      if (u >= 0 && u % up == 0 && u / up < in)
        all[size_t(p)].push_back({u / up, flipped ? i : kernel - 1 - i});
    }
  return all;
}

struct FilterTaps {
  std::vector<std::vector<AxisTap>> rows, columns;
  explicit FilterTaps(const UpfirdnGeometry& g)
      : rows(axis_taps(g.input.h, g.output.h, g.kernel.h, g.up.h, g.down.h, g.top, g.flipped)),
        columns(axis_taps(g.input.w, g.output.w, g.kernel.w, g.up.w, g.down.w, g.left, g.flipped)) {}
};

// A term of an output pixel: weight * from[c] for each channel c of an input pixel.
template <class T> struct Tap {
  const T* from;
  T weight;
};

// N adjacent channels.
template <class T, int N> using Vector [[gnu::vector_size(N * sizeof(T))]] = T;

// to[c + i] = sum over taps of weight * from[c + i], for i < Count * N. The Count vector sums stay in registers.
template <int N, int Count, class T> void sum_channels(T* to, int64_t c, const std::vector<Tap<T>>& taps) {
  using Channels = Vector<T, N>;
  Channels sums[Count] = {};
  for (const Tap<T>& t : taps)
    for (int i = 0; i < Count; ++i) {
      Channels pixel;
      std::memcpy(&pixel, t.from + c + i * N, sizeof pixel);
      sums[i] += t.weight * pixel;
    }
  std::memcpy(to + c, sums, sizeof sums);
}

// to[c] = sum over taps of weight * from[c], for c < C.
template <class T> void weighted_sum(T* to, int64_t C, const std::vector<Tap<T>>& taps) {
  constexpr int kLanes = 32 / sizeof(T);
  int64_t c = 0;
  for (; c + 4 * kLanes <= C; c += 4 * kLanes) sum_channels<kLanes, 4>(to, c, taps);
  for (; c + kLanes <= C; c += kLanes) sum_channels<kLanes, 1>(to, c, taps);
  for (; c < C; ++c) sum_channels<1, 1>(to, c, taps);
}

// x [N, C, H, W], y [N, C, P, Q], kernel [KH, KW]. Threads divide the output rows.
template <class T>
void upfirdn2d(const Tensor& y, const Tensor& x, const T* kernel, const UpfirdnGeometry& g) {
  const int64_t C = x.size(1), row = g.input.w * C;
  const FilterTaps axes(g);
  const int64_t work = g.output.w * C * (1 + g.kernel.h * g.kernel.w / (g.up.h * g.up.w));
  parallel_for(0, y.size(0) * g.output.h, 1 + 16384 / (1 + work), [&](int64_t first, int64_t last) {
    std::vector<Tap<T>> taps;
    for (int64_t r = first; r < last; ++r) {
      const T* image = x.ptr<T>() + r / g.output.h * g.input.h * row;
      T* to = y.ptr<T>() + r * g.output.w * C;
      for (int64_t q = 0; q < g.output.w; ++q, to += C) {
        taps.clear();
        for (const AxisTap& h : axes.rows[size_t(r % g.output.h)])
          for (const AxisTap& w : axes.columns[size_t(q)])
            taps.push_back({image + h.input * row + w.input * C, kernel[h.tap * g.kernel.w + w.tap]});
        weighted_sum(to, C, taps);
      }
    }
  });
}

// dk[k] = sum of dy * x over the output pixels of which filter tap k multiplies an input pixel, in f64. Threads
// divide the taps, so the result does not depend on the number of threads.
template <class T> void kernel_grad(T* dk, const Tensor& dy, const Tensor& x, const UpfirdnGeometry& g) {
  const int64_t C = x.size(1), row = g.input.w * C, N = x.size(0);
  const FilterTaps axes(g);
  parallel_for(0, g.kernel.h * g.kernel.w, 1 + 16384 / (1 + dy.numel()), [&](int64_t first, int64_t last) {
    std::fill(dk + first, dk + last, T(0));
    std::vector<double> sums(size_t(last - first), 0);
    for (int64_t r = 0; r < N * g.output.h; ++r)
      for (const AxisTap& h : axes.rows[size_t(r % g.output.h)])
        for (int64_t q = 0; q < g.output.w; ++q)
          for (const AxisTap& w : axes.columns[size_t(q)]) {
            const int64_t k = h.tap * g.kernel.w + w.tap;
            if (k < first || k >= last) continue;
            const T* a = dy.ptr<T>() + (r * g.output.w + q) * C;
            const T* b = x.ptr<T>() + (r / g.output.h * g.input.h + h.input) * row + w.input * C;
            double sum = 0;
            for (int64_t c = 0; c < C; ++c) sum += double(a[c]) * double(b[c]);
            sums[size_t(k - first)] += sum;
          }
    for (int64_t k = first; k < last; ++k) dk[k] = T(sums[size_t(k - first)]);
  });
}

void upfirdn2d_cpu(const Tensor& y, const Tensor& x, const Tensor& kernel, UpfirdnGeometry g) {
  dispatch_floating(x.dtype(), "upfirdn2d", [&]<class T>() { upfirdn2d<T>(y, x, kernel.ptr<T>(), g); });
}
void upfirdn2d_kernel_grad_cpu(const Tensor& dk, const Tensor& dy, const Tensor& x, UpfirdnGeometry g) {
  dispatch_floating(x.dtype(), "upfirdn2d_kernel_grad",
                    [&]<class T>() { kernel_grad<T>(dk.ptr<T>(), dy, x, g); });
}

}  // namespace

constinit decltype(upfirdn2d_kernel) upfirdn2d_kernel{"upfirdn2d", &upfirdn2d_cpu};
constinit decltype(upfirdn2d_kernel_grad_kernel) upfirdn2d_kernel_grad_kernel{"upfirdn2d_kernel_grad",
                                                                              &upfirdn2d_kernel_grad_cpu};

}  // namespace gradus::raw
