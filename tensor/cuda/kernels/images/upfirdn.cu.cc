// CUDA kernels of upfirdn2d and of the gradient of its filter, on channels-last images (upfirdn.h). They visit input
// pixels alone, not the zeros between them. Sums have a fixed order and there are no atomics. The gradient of x is
// upfirdn2d itself, with another geometry.
#include "gradus/tensor/cuda/kernels/images/upfirdn.h"

#include <algorithm>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMinRows = 8;            // of a piece
constexpr int64_t kTargetItems = 1 << 20;  // elements that the threads read at once, to fill a device

// The taps of an output position are tap, tap + up, ... < kernel, at the inputs input, input + 1, ... < in.
struct FirstTap {
  int32_t tap, input;
};
__device__ __forceinline__ FirstTap first_tap(const UpfirdnAxis& a, int32_t out) {
  const int32_t at = out * a.down - a.padding, input = at > 0 ? (at + a.up - 1) / a.up : 0;
  return {input * a.up - at, input};
}
// Returns the input at tap `tap` of output position `out`, -1 if there is none.
__device__ __forceinline__ int32_t input_at(const UpfirdnAxis& a, int32_t out, int32_t tap) {
  const int32_t at = out * a.down + tap - a.padding, input = at / a.up;
  return at >= 0 && input * a.up == at && input < a.in ? input : -1;
}
// Returns the offset in the filter of tap k = i * w.kernel + j.
__device__ __forceinline__ int64_t filter_at(const Upfirdn& s, int64_t k) {
  return s.flipped ? k : int64_t{s.h.kernel} * s.w.kernel - 1 - k;
}

// y[n, p, q, c] = sum over taps (i, j) of filter[tap] * x[n, h, w, c], for h * up = p * down + i - padding, and so for
// w. A thread has `vector` neighboring channels of one position (n, p, q), its neighbors those that follow in memory.
// N is the type of their number.
template <class T, int vector, class N>
__global__ void __launch_bounds__(kThreads) upfirdn_position(T* y, const T* x, const T* filter, Upfirdn s) {
  const N item = static_cast<N>(blockIdx.x) * kThreads + threadIdx.x,
          vectors = static_cast<N>(s.channels / vector), columns = static_cast<N>(s.w.out),
          rows = static_cast<N>(s.h.out);
  const N position = item / vectors, row = position / columns, image = row / rows;
  if (static_cast<int64_t>(image) >= s.images) return;
  const FirstTap first_h = first_tap(s.h, static_cast<int32_t>(row - image * rows)),
                 first_w = first_tap(s.w, static_cast<int32_t>(position - row * columns));
  x += static_cast<int64_t>(image) * s.h.in * s.w.in * s.channels +
       static_cast<int64_t>(item - position * vectors) * vector;
  Vector<T, vector> sum{};
  int32_t h = first_h.input;
  for (int32_t i = first_h.tap; i < s.h.kernel && h < s.h.in; i += s.h.up, ++h) {
    int32_t w = first_w.input;
    const T* from = x + (int64_t{h} * s.w.in + w) * s.channels;
    for (int32_t j = first_w.tap; j < s.w.kernel && w < s.w.in; j += s.w.up, ++w, from += s.channels) {
      const T weight = filter[filter_at(s, int64_t{i} * s.w.kernel + j)];
      const auto pixel = load<vector>(from);
#pragma unroll
      for (int c = 0; c < vector; ++c) sum.v[c] += weight * pixel.v[c];
    }
  }
  store(y + static_cast<int64_t>(item) * vector, sum);
}

// The threads for one tap: each has `vector` elements at one position of a row [w.out, channels], and a piece of the
// images * h.out rows.
struct RowPieces {
  int64_t rows, vectors, count, length;  // vectors: of a row; count: pieces, of `length` rows or less

  int64_t blocks() const { return blocks_for(vectors * count, kThreads); }
};
RowPieces pieces_of(const Upfirdn& s, int vector) {
  const int64_t taps = int64_t{s.h.kernel} * s.w.kernel, n = s.w.out * s.channels;
  RowPieces p{s.images * s.h.out, n / vector, 1, 1};
  p.count = std::max<int64_t>(1, std::min(kTargetItems / taps / n, p.rows / kMinRows));
  p.length = blocks_for(p.rows, p.count);
  p.count = blocks_for(p.rows, p.length);
  return p;
}

// sums[k, b] = sum of dy[n, p, q, c] * x[n, h, w, c] over the elements of block b for tap k = i * w.kernel + j, with
// h * up = p * down + i - padding, and so for w. Neighboring threads have neighboring elements of a row of dy;
// neighboring blocks have the same elements for another tap, so that these come from the cache.
template <class T, int vector>
__global__ void __launch_bounds__(kThreads)
    sum_filter_taps(double* sums, const T* dy, const T* x, Upfirdn s, RowPieces pieces, int64_t blocks) {
  const int64_t taps = int64_t{s.h.kernel} * s.w.kernel, k = blockIdx.x % taps, block = blockIdx.x / taps;
  const int64_t item = block * kThreads + threadIdx.x, piece = item / pieces.vectors,
                at = item % pieces.vectors * vector;
  const auto i = static_cast<int32_t>(k / s.w.kernel), j = static_cast<int32_t>(k % s.w.kernel),
             q = static_cast<int32_t>(at / s.channels);
  const int32_t w = input_at(s.w, q, j);
  double sum = 0;
  if (w >= 0) {
    int64_t row = piece * pieces.length, image = row / s.h.out;
    const int64_t end = std::min(pieces.rows, row + pieces.length);
    auto p = static_cast<int32_t>(row % s.h.out);
    x += w * s.channels + at % s.channels;
    for (; row < end; ++row) {
      const int32_t h = input_at(s.h, p, i);
      if (h >= 0) {
        const auto a = load<vector>(dy + row * s.w.out * s.channels + at);
        const auto b = load<vector>(x + (image * s.h.in + h) * s.w.in * s.channels);
#pragma unroll
        for (int c = 0; c < vector; ++c) sum += static_cast<double>(a.v[c]) * static_cast<double>(b.v[c]);
      }
      if (++p == s.h.out) p = 0, ++image;
    }
  }
  sum = merge_block<kThreads>(Sum<double>{}, sum);
  if (threadIdx.x == 0) sums[k * blocks + block] = sum;
}

// dfilter of tap k = sum_b sums[k, b]. A block has tap k; thread t adds every kThreads-th sum.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_filter_sums(T* dfilter, const double* sums, Upfirdn s, int64_t blocks) {
  double sum = 0;
  for (int64_t b = threadIdx.x; b < blocks; b += kThreads) sum += sums[blockIdx.x * blocks + b];
  sum = merge_block<kThreads>(Sum<double>{}, sum);
  if (threadIdx.x == 0) dfilter[filter_at(s, blockIdx.x)] = static_cast<T>(sum);
}

// Calls f<vector>(), with the channels of a thread: 16 bytes if all pixels are whole, aligned vectors, else one.
template <class T, class F> void with_vector(const T* image, const T* other, int64_t channels, F&& f) {
  if (channels % kVectorSize<T> == 0 && is_aligned(image, 16) && is_aligned(other, 16))
    f.template operator()<kVectorSize<T>>();
  else
    f.template operator()<1>();
}

}  // namespace

template <class T>
void upfirdn2d(const char* op, T* y, const T* x, const T* filter, const Upfirdn& s, cudaStream_t stream) {
  with_vector(y, x, s.channels, [&]<int vector>() {
    const Grid grid{blocks_for(s.images * s.h.out * s.w.out * s.channels / vector, kThreads), kThreads};
    // 32-bit divisions are fast.
    if (grid.blocks <= (int64_t{1} << 31) / kThreads && s.channels < int64_t{1} << 31)
      launch(op, upfirdn_position<T, vector, uint32_t>, grid, stream, y, x, filter, s);
    else
      launch(op, upfirdn_position<T, vector, uint64_t>, grid, stream, y, x, filter, s);
  });
}

int64_t upfirdn2d_filter_grad_workspace(const Upfirdn& s) {
  return s.h.kernel * s.w.kernel * pieces_of(s, 1).blocks() * static_cast<int64_t>(sizeof(double));
}

template <class T>
void upfirdn2d_filter_grad(const char* op, T* dfilter, const T* dy, const T* x, const Upfirdn& s,
                           void* workspace, cudaStream_t stream) {
  auto* const sums = static_cast<double*>(workspace);
  const int64_t taps = int64_t{s.h.kernel} * s.w.kernel, shared = sizeof(MergedWarps<double, kThreads>);
  with_vector(dy, x, s.channels, [&]<int vector>() {
    const RowPieces pieces = pieces_of(s, vector);
    const int64_t blocks = pieces.blocks();
    launch(op, sum_filter_taps<T, vector>, {taps * blocks, kThreads, shared}, stream, sums, dy, x, s, pieces,
           blocks);
    launch(op, add_filter_sums<T>, {taps, kThreads, shared}, stream, dfilter, sums, s, blocks);
  });
}

#define GRADUS_INSTANTIATE(T)                                                                     \
  template void upfirdn2d(const char*, T*, const T*, const T*, const Upfirdn&, cudaStream_t);     \
  template void upfirdn2d_filter_grad(const char*, T*, const T*, const T*, const Upfirdn&, void*, \
                                      cudaStream_t);
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(double)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
