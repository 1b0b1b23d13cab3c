// CUDA kernels of cumsum along n of [outer, n, inner]. The n elements are divided into pieces: one launch adds up each
// piece, the next adds the sums of the earlier pieces, in their order, and then its own elements. A single piece takes
// one launch. Sums are f64 for floats and 64-bit integers for the others, in an order that depends on sizes alone.
#include "gradus/tensor/cuda/kernels/cumsum.h"

#include <algorithm>
#include <type_traits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMinPiece = 256;           // elements
constexpr int64_t kMaxPieces = 512;          // of a row
constexpr int64_t kTargetThreads = 1 << 18;  // that fill a device

template <class T> using SumOf = std::conditional_t<is_floating(dtype_v<T>), double, uint64_t>;
template <class T> using ResultOf = std::conditional_t<is_floating(dtype_v<T>), T, int64_t>;

// A row is the n elements at one position of outer and inner.
struct Pieces {
  int64_t rows, n, inner, count, length;  // count: pieces of a row, each of `length` elements or less
};

// inner == 1: a warp has a piece, its lanes neighboring elements. inner > 1: a thread has a piece, neighboring threads
// neighboring rows.
int64_t threads_for(const Pieces& p) { return p.rows * p.count * (p.inner == 1 ? kWarp : 1); }

Pieces pieces_of(int64_t outer, int64_t n, int64_t inner) {
  Pieces p{outer * inner, n, inner, 1, n};
  const int64_t target_pieces = kTargetThreads / std::max<int64_t>(threads_for(p), 1);
  p.count = std::clamp<int64_t>(std::min(target_pieces, n / kMinPiece), 1, kMaxPieces);
  p.length = blocks_for(n, p.count);
  p.count = blocks_for(n, p.length);
  return p;
}

// The piece of the calling warp or thread. Element i of the row, in the order of the sum, is at offset first + i * step.
struct PieceIndex {
  int64_t row, piece, begin, end, first, step;
};
template <bool warp_per_piece>
__device__ __forceinline__ PieceIndex piece_index(const Pieces& p, bool reverse) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x,
                item = warp_per_piece ? thread / kWarp : thread;
  PieceIndex index;
  index.row = warp_per_piece ? item / p.count : item / (p.count * p.inner) * p.inner + item % p.inner;
  index.piece = warp_per_piece ? item % p.count : item / p.inner % p.count;
  index.begin = index.piece * p.length;
  index.end = index.row < p.rows ? std::min(p.n, index.begin + p.length) : index.begin;
  index.step = reverse ? -p.inner : p.inner;
  index.first =
      index.row / p.inner * p.n * p.inner + index.row % p.inner + (reverse ? (p.n - 1) * p.inner : 0);
  return index;
}

// sums[row, piece] = sum of the piece if a warp has a piece; sums[piece, row] if a thread has one.
template <class T, bool warp_per_piece>
__global__ void __launch_bounds__(kThreads) sum_pieces(SumOf<T>* sums, const T* x, Pieces p, bool reverse) {
  const PieceIndex index = piece_index<warp_per_piece>(p, reverse);
  const int lane = warp_per_piece ? threadIdx.x % kWarp : 0;
  SumOf<T> sum = 0;
#pragma unroll 4
  for (int64_t i = index.begin + lane; i < index.end; i += warp_per_piece ? kWarp : 1)
    sum += convert<SumOf<T>>(x[index.first + i * index.step]);
  if constexpr (warp_per_piece) {
#pragma unroll
    for (int d = kWarp / 2; d > 0; d /= 2) sum += __shfl_xor_sync(kAllLanes, sum, d);
  }
  if (lane == 0 && index.row < p.rows)
    sums[warp_per_piece ? index.row * p.count + index.piece : index.piece * p.rows + index.row] = sum;
}

// Inclusive scan: out[row, i] = sum of x[row, k] for k <= i, where i counts from the end if `reverse`. A piece starts
// from the sum of the earlier pieces' sums. Threads map to pieces as in sum_pieces().
template <class T, bool warp_per_piece>
__global__ void __launch_bounds__(kThreads)
    scan_pieces(ResultOf<T>* out, const T* x, const SumOf<T>* sums, Pieces p, bool reverse) {
  using A = SumOf<T>;
  const PieceIndex index = piece_index<warp_per_piece>(p, reverse);
  const int lane = warp_per_piece ? threadIdx.x % kWarp : 0;
  const bool exists = index.row < p.rows;
  A carry = 0;
  if constexpr (warp_per_piece) {
    for (int64_t q = lane; exists && q < index.piece; q += kWarp) carry += sums[index.row * p.count + q];
#pragma unroll
    for (int d = kWarp / 2; d > 0; d /= 2) carry += __shfl_xor_sync(kAllLanes, carry, d);
    for (int64_t i = index.begin; i < index.end; i += kWarp) {
      const int64_t at = index.first + (i + lane) * index.step;
      A inclusive_sum = i + lane < index.end ? convert<A>(x[at]) : A(0);  // sum from lane 0 to this lane
#pragma unroll
      for (int d = 1; d < kWarp; d *= 2) {
        const A other = __shfl_sync(kAllLanes, inclusive_sum, lane >= d ? lane - d : lane);
        if (lane >= d) inclusive_sum += other;
      }
      if (i + lane < index.end) out[at] = convert<ResultOf<T>>(carry + inclusive_sum);
      carry += __shfl_sync(kAllLanes, inclusive_sum, kWarp - 1);
    }
  } else {
    for (int64_t q = 0; exists && q < index.piece; ++q) carry += sums[q * p.rows + index.row];
    for (int64_t i = index.begin; i < index.end; ++i) {
      const int64_t at = index.first + i * index.step;
      carry += convert<A>(x[at]);
      out[at] = convert<ResultOf<T>>(carry);
    }
  }
}

template <class T, bool warp_per_piece>
void run(const char* op, ResultOf<T>* out, const T* x, const Pieces& p, bool reverse, void* workspace,
         cudaStream_t stream) {
  const Grid grid{blocks_for(threads_for(p), kThreads), kThreads};
  auto* const sums = static_cast<SumOf<T>*>(workspace);
  if (p.count > 1) launch(op, sum_pieces<T, warp_per_piece>, grid, stream, sums, x, p, reverse);
  launch(op, scan_pieces<T, warp_per_piece>, grid, stream, out, x, sums, p, reverse);
}

}  // namespace

int64_t cumsum_workspace(int64_t outer, int64_t n, int64_t inner) {
  const Pieces p = pieces_of(outer, n, inner);
  return p.count > 1 ? p.rows * p.count * int64_t{sizeof(double)} : 0;
}

void cumsum(const char* op, const View& out, const View& x, int64_t outer, int64_t n, int64_t inner,
            bool reverse, void* workspace, cudaStream_t stream) {
  if (outer * n * inner == 0) return;
  const Pieces p = pieces_of(outer, n, inner);
  with_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    (inner == 1 ? run<T, true> : run<T, false>)(op, out.as<ResultOf<T>>(), x.as<const T>(), p, reverse,
                                                workspace, stream);
  });
}

}  // namespace gradus::cuda
