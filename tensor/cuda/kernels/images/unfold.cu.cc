// CUDA kernels of unfold (im2col) and fold (col2im) (unfold.h). Fold is a gather: a thread adds the columns of its
// pixel in ascending order of the taps, as the CPU kernel does, so there are no atomics.
#include "gradus/tensor/cuda/kernels/images/unfold.h"

#include <numeric>

#include "gradus/tensor/cuda/kernels/kernel.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;

// columns[c, i, j, p, q] = images[c, p * stride - padding + i * dilation, ...], 0 outside of the image. A thread has
// all taps of the window (c, p, q), its neighbors the neighboring windows: for each tap, they write neighboring
// elements. N is the type of c * p * q.
template <class T, class N>
__global__ void __launch_bounds__(kThreads) unfold_window(T* columns, const T* images, Unfolding s) {
  const N item = static_cast<N>(blockIdx.x) * kThreads + threadIdx.x, rows = static_cast<N>(s.h.blocks),
          row = item / static_cast<N>(s.w.blocks), channel = row / rows;
  if (static_cast<int64_t>(channel) >= s.channels) return;
  const auto p = static_cast<int32_t>(row - channel * rows),
             q = static_cast<int32_t>(item - row * static_cast<N>(s.w.blocks));
  const int64_t blocks = int64_t{s.h.blocks} * s.w.blocks;
  const T* const image = images + static_cast<int64_t>(channel) * s.h.image * s.w.image;
  T* to = columns + static_cast<int64_t>(channel) * s.h.kernel * s.w.kernel * blocks +
          (int64_t{p} * s.w.blocks + q);
  int32_t h = p * s.h.stride - s.h.padding;
  for (int32_t i = 0; i < s.h.kernel; ++i, h += s.h.dilation) {
    const bool has_row = h >= 0 && h < s.h.image;
    int32_t w = q * s.w.stride - s.w.padding;
    for (int32_t j = 0; j < s.w.kernel; ++j, w += s.w.dilation, to += blocks)
      *to = has_row && w >= 0 && w < s.w.image ? image[int64_t{h} * s.w.image + w] : T(0);
  }
}

// The taps of an axis that read a pixel are tap, tap + tap_step, ... < kernel, and those of the windows block, block
// - block_step, ... >= 0, of which the first ones may be windows that do not exist.
struct TapSteps {
  int32_t tap, block;
};
TapSteps steps_of(const UnfoldAxis& a) {
  const int32_t common = std::gcd(a.stride, a.dilation);
  return {a.stride / common, a.dilation / common};
}
struct TapOfPixel {
  int32_t tap, block;
};
// Returns the first tap, or one >= kernel if there is none.
__device__ __forceinline__ TapOfPixel first_tap(const UnfoldAxis& a, int32_t pixel) {
  int32_t tap = 0, at = pixel + a.padding;
  while (tap < a.kernel && at % a.stride != 0) ++tap, at -= a.dilation;
  return {tap, at / a.stride};
}
// Calls f(tap, block) for the existing windows, in ascending order of the taps.
template <class F>
__device__ __forceinline__ void for_each_tap(const UnfoldAxis& a, const TapSteps& step, TapOfPixel at,
                                             F&& f) {
  for (; at.tap < a.kernel && at.block >= 0; at.tap += step.tap, at.block -= step.block)
    if (at.block < a.blocks) f(at.tap, at.block);
}

// images[c, h, w] = sum of columns[c, i, j, p, q] over i, j, p, q with p * stride - padding + i * dilation = h, and so
// for w. A thread has one pixel, its neighbors the neighboring pixels. N is the type of c * h * w.
template <class T, class N>
__global__ void __launch_bounds__(kThreads)
    fold_pixel(T* images, const T* columns, Unfolding s, TapSteps h_steps, TapSteps w_steps) {
  const N item = static_cast<N>(blockIdx.x) * kThreads + threadIdx.x, rows = static_cast<N>(s.h.image),
          row = item / static_cast<N>(s.w.image), channel = row / rows;
  if (static_cast<int64_t>(channel) >= s.channels) return;
  const int64_t blocks = int64_t{s.h.blocks} * s.w.blocks;
  const T* const from = columns + static_cast<int64_t>(channel) * s.h.kernel * s.w.kernel * blocks;
  const TapOfPixel first_h = first_tap(s.h, static_cast<int32_t>(row - channel * rows)),
                   first_w = first_tap(s.w, static_cast<int32_t>(item - row * static_cast<N>(s.w.image)));
  T sum = 0;
  for_each_tap(s.h, h_steps, first_h, [&](int32_t i, int32_t p) {
    const T* const taps = from + int64_t{i} * s.w.kernel * blocks + int64_t{p} * s.w.blocks;
    for_each_tap(s.w, w_steps, first_w, [&](int32_t j, int32_t q) { sum += taps[j * blocks + q]; });
  });
  images[item] = sum;
}

// Calls f<N>(grid) for a thread for each of `rows` x `columns` elements of each channel. N is an unsigned type of 32
// bits, whose divisions are fast, unless there are too many threads.
template <class F> void with_index(const Unfolding& s, int64_t rows, int64_t columns, F&& f) {
  const int64_t blocks = blocks_for(s.channels * rows * columns, kThreads);
  const Grid grid{blocks, kThreads};
  if (blocks <= (int64_t{1} << 31) / kThreads)
    f.template operator()<uint32_t>(grid);
  else
    f.template operator()<uint64_t>(grid);
}

}  // namespace

template <class T>
void unfold(const char* op, T* columns, const T* images, const Unfolding& s, cudaStream_t stream) {
  with_index(s, s.h.blocks, s.w.blocks, [&]<class N>(const Grid& grid) {
    launch(op, unfold_window<T, N>, grid, stream, columns, images, s);
  });
}

template <class T>
void fold(const char* op, T* images, const T* columns, const Unfolding& s, cudaStream_t stream) {
  with_index(s, s.h.image, s.w.image, [&]<class N>(const Grid& grid) {
    launch(op, fold_pixel<T, N>, grid, stream, images, columns, s, steps_of(s.h), steps_of(s.w));
  });
}

#define GRADUS_INSTANTIATE(T)                                                      \
  template void unfold(const char*, T*, const T*, const Unfolding&, cudaStream_t); \
  template void fold(const char*, T*, const T*, const Unfolding&, cudaStream_t);
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(double)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
