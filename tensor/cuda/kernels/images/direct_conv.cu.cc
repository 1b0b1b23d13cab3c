// Direct 1-D to 3-D convolution (cross-correlation) with groups, and its gradients, for images
// [N, D, H, W, C]: the fallback for shapes that cuDNN has no plan for. In forward and the input gradient a
// thread computes one element of the result; neighboring threads have neighboring channels, so they read the
// same element of the source and neighboring elements of the filters. In the weight gradient neighboring
// threads have neighboring pairs of channels, and the warps of a block share the lines (rows of w) of the
// images. A place is a position (d, h, w), a tap an element of a filter.
#include "gradus/tensor/cuda/kernels/images/direct_conv.h"

#include <algorithm>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = kThreads / kWarp;

// Returns the input position that a tap reads for an output position; negative in the padding.
__device__ __forceinline__ int64_t input_at(const ConvAxis& a, int64_t place, int64_t tap) {
  const int64_t at = place * a.stride - a.padding + tap * a.dilation;
  return at < a.in ? at : -1;
}
// Returns the output position that reads this input position with this tap; negative if there is none.
__device__ __forceinline__ int64_t output_at(const ConvAxis& a, int64_t place, int64_t tap) {
  const int64_t origin = place + a.padding - tap * a.dilation, at = origin / a.stride;
  return at < a.out && at * a.stride == origin ? at : -1;
}
template <bool backward>
__device__ __forceinline__ int64_t source_at(const ConvAxis& a, int64_t place, int64_t tap) {
  return backward ? output_at(a, place, tap) : input_at(a, place, tap);
}

// result[image, place, channel] = bias[channel] + sum over taps and summed channels m of source[image, place
// at tap, m] * filters[tap, m, channel]. Forward, result is y and source is x; backward, they are dx and dy.
// A thread has one element of the result; neighboring threads have neighboring channels.
template <bool backward, class T>
__global__ void __launch_bounds__(kThreads, 4)
    sum_taps(T* result, const T* source, const T* filters, const T* bias, DirectConv c, int64_t items) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= items) return;
  const auto size = [](const ConvAxis& a) { return backward ? a.in : a.out; };
  const auto source_size = [](const ConvAxis& a) { return backward ? a.out : a.in; };
  const int64_t channels = backward ? c.in_channels : c.out_channels,
                source_channels = backward ? c.out_channels : c.in_channels,
                summed = source_channels / c.groups;
  const int64_t channel = item % channels, place = item / channels, row = place / size(c.w),
                slice = row / size(c.h), image = slice / size(c.d);
  const int64_t first = channel / (channels / c.groups) * summed;
  compute_t<T> sum = 0;
  for (int64_t i = 0; i < c.d.taps; ++i) {
    const int64_t d = source_at<backward>(c.d, slice % size(c.d), i);
    if (d < 0) continue;
    for (int64_t j = 0; j < c.h.taps; ++j) {
      const int64_t h = source_at<backward>(c.h, row % size(c.h), j);
      if (h < 0) continue;
#pragma unroll 1
      for (int64_t k = 0; k < c.w.taps; ++k) {
        const int64_t w = source_at<backward>(c.w, place % size(c.w), k);
        if (w < 0) continue;
        const int64_t at = ((image * source_size(c.d) + d) * source_size(c.h) + h) * source_size(c.w) + w;
        const T* const x = source + at * source_channels + first;
        const T* f = filters + ((i * c.h.taps + j) * c.w.taps + k) * summed * channels + channel;
        for (int64_t m = 0; m < summed; ++m, f += channels) sum = m::fma(widen(x[m]), widen(*f), sum);
      }
    }
  }
  if (bias) sum += widen(bias[channel]);
  result[item] = convert<T>(sum);
}

template <class C> struct Partials {
  C sums[kRows][kWarp];
};

// dw[out, in, tap] = sum over images and places of dy[image, place, out] * x[image, place at tap, in]. A
// block has one tap and kWarp pairs (out, in), one for each lane. A warp has every kRows-th line of dy;
// shared memory merges the warps.
template <class T>
__global__ void __launch_bounds__(kThreads, 4)
    sum_places(T* dw, const T* dy, const T* x, DirectConv c, int64_t tiles) {
  using C = compute_t<T>;
  const int lane = threadIdx.x % kWarp, row = threadIdx.x / kWarp;
  const int64_t tap = blockIdx.x / tiles, pair = blockIdx.x % tiles * kWarp + lane;
  const int64_t each = c.in_channels / c.groups, out = pair / each,
                in = out / (c.out_channels / c.groups) * each + pair % each;
  C sum = 0;
  if (out < c.out_channels) {
    const int64_t k = tap % c.w.taps, j = tap / c.w.taps % c.h.taps, i = tap / c.w.taps / c.h.taps;
    for (int64_t line = row; line < c.images * c.d.out * c.h.out; line += kRows) {
      const int64_t slice = line / c.h.out, image = slice / c.d.out;
      const int64_t d = input_at(c.d, slice % c.d.out, i), h = input_at(c.h, line % c.h.out, j);
      if (d < 0 || h < 0) continue;
      const T* const g = dy + line * c.w.out * c.out_channels + out;
      const T* const inputs = x + ((image * c.d.in + d) * c.h.in + h) * c.w.in * c.in_channels + in;
      for (int64_t place = 0; place < c.w.out; ++place) {
        const int64_t w = input_at(c.w, place, k);
        if (w < 0) continue;
        sum = m::fma(widen(g[place * c.out_channels]), widen(inputs[w * c.in_channels]), sum);
      }
    }
  }
  auto& partials = shared_memory<Partials<C>>();
  partials.sums[row][lane] = sum;
  __syncthreads();
  if (row != 0 || out >= c.out_channels) return;
  for (int other = 1; other < kRows; ++other) sum += partials.sums[other][lane];
  dw[pair * c.d.taps * c.h.taps * c.w.taps + tap] = convert<T>(sum);
}

int64_t places_of(const DirectConv& c, int64_t ConvAxis::*side) {
  return c.images * (c.d.*side) * (c.h.*side) * (c.w.*side);
}

}  // namespace

void direct_conv(const char* op, const View& y, const View& x, const View& filters, const View& bias,
                 const DirectConv& c, cudaStream_t stream) {
  const int64_t items = places_of(c, &ConvAxis::out) * c.out_channels;
  with_float(y.dtype, [&]<class T>(T) {
    launch(op, sum_taps<false, T>, {blocks_for(items, kThreads), kThreads}, stream, y.as<T>(), x.as<T>(),
           filters.as<T>(), bias.as<T>(), c, items);
  });
}

void direct_conv_input_grad(const char* op, const View& dx, const View& dy, const View& filters,
                            const DirectConv& c, cudaStream_t stream) {
  const int64_t items = places_of(c, &ConvAxis::in) * c.in_channels;
  with_float(dx.dtype, [&]<class T>(T) {
    launch(op, sum_taps<true, T>, {blocks_for(items, kThreads), kThreads}, stream, dx.as<T>(), dy.as<T>(),
           filters.as<T>(), nullptr, c, items);
  });
}

void direct_conv_weight_grad(const char* op, const View& dw, const View& dy, const View& x,
                             const DirectConv& c, cudaStream_t stream) {
  const int64_t tiles = blocks_for(c.out_channels * (c.in_channels / c.groups), kWarp);
  with_float(dw.dtype, [&]<class T>(T) {
    launch(op, sum_places<T>,
           {tiles * c.d.taps * c.h.taps * c.w.taps, kThreads, sizeof(Partials<compute_t<T>>)}, stream,
           dw.as<T>(), dy.as<T>(), x.as<T>(), c, tiles);
  });
}

}  // namespace gradus::cuda
