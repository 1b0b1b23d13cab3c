// Reductions of dense row-major tensors seen as [outer, n, inner] to [outer, inner], on CUDA devices. The
// entry points reduce() and reduce_rows() launch kernels, and do not wait. Pointers are to device memory.
//
// An Op (reduce_ops.h) defines how elements are combined, by the types In (element), Lane (accumulator of few
// elements, in their precision), Wide (accumulator of many, without padding bytes), Out, and by the functions
//   Lane start()                  the neutral element
//   Lane step(Lane, In[, i])      adds an element; i: its index in its piece, for indexed ops (argmax)
//   Wide merge(Wide, Wide)        combines two accumulators, the earlier elements first
//   Wide offset_index(Wide, i)    indexed ops: adds i to the accumulator's index
//   Out finish(Wide[, i])         the result; i: its index in `out`
//
// Note [Order of summation on a GPU]
// The order of combination depends only on shapes and the input's address modulo 16, so two runs agree bit
// for bit. A thread accumulates kLaneSteps steps in Lane, then merges them into its Wide value. The values of a
// row's threads, of a column's rows and of pieces are merged pairwise, in the order of their indices. If
// there would be too few blocks to fill the device, n is divided into pieces, whose results a second kernel
// merges: blocks never wait for each other, and there are no atomic sums.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"

namespace gradus::cuda {
namespace reduce_detail {

inline constexpr int kThreads = 256;
inline constexpr int kLaneSteps = 16;    // steps accumulated in Lane; few, to limit rounding errors of f32
inline constexpr int64_t kShort = 1024;  // rows of at most this length are reduced by one warp or less
inline constexpr int64_t kTargetBlocks = 1024;  // number of blocks that fill a device; at most kShort pieces
inline constexpr int64_t kPiece = 4096;         // minimum length of a piece of a row, worth a block

// The Op of the first of two kernels: the result of a piece is its accumulator.
template <class Op> struct Partial : Op {
  using Out = typename Op::Wide;
  __device__ Out finish(Out a) const { return a; }
};
// The Op of the second kernel: its elements are the accumulators of the pieces.
template <class Op> struct Merged : Op {
  using In = typename Op::Wide;
  using Lane = typename Op::Wide;
  __device__ Lane start() const { return static_cast<Lane>(Op::start()); }
  __device__ Lane step(Lane a, In x) const { return Op::merge(a, x); }
};

// Whether Op is indexed. Indices take registers, so indexed ops load fewer elements at once, and launch
// bounds limit ptxas to the registers of least_blocks blocks per multiprocessor (0: no limit).
template <class Op>
constexpr bool is_indexed = requires(Op op, typename Op::Wide a) { op.offset_index(a, 0); };
template <class Op> constexpr int least_blocks = is_indexed<Op> ? 4 : 0;

// Call the Op's function with an index if it has that parameter, else without. Elements are numbered from the
// first one of their piece, by 32-bit indices. A piece of 2^31 elements is possible only if kTargetBlocks blocks
// have as many, which exceeds the memory of a device.
template <class Op, class N>
__device__ __forceinline__ typename Op::Lane step(const Op& op, typename Op::Lane a, typename Op::In x, N i) {
  if constexpr (requires { op.step(a, x, 0); })
    return op.step(a, x, static_cast<int32_t>(i));
  else
    return op.step(a, x);
}
template <class Op>
__device__ __forceinline__ typename Op::Wide offset_index(const Op& op, const typename Op::Wide& a,
                                                          int64_t first) {
  if constexpr (is_indexed<Op>)
    return op.offset_index(a, first);
  else
    return a;
}
template <class Op>
__device__ __forceinline__ typename Op::Out finish(const Op& op, const typename Op::Wide& a, int64_t i) {
  if constexpr (requires { op.finish(a, i); })
    return op.finish(a, i);
  else
    return op.finish(a);
}

// Number of elements of a row that a thread loads at once, and number of columns per thread: those of a
// 16-byte vector, but fewer if their accumulators would take most of the registers (Op::kHalfVectors: half a
// vector of columns).
template <class Op>
constexpr int row_vector_of = std::min(kVectorSize<typename Op::In>,
                                       is_indexed<Op> ? 4 : 64 / static_cast<int>(sizeof(typename Op::Lane)));
template <class Op> constexpr bool takes_half_vectors = requires { requires Op::kHalfVectors; };
template <class Op>
constexpr int columns_of =
    std::min(kVectorSize<typename Op::In> / (takes_half_vectors<Op> ? 2 : 1),
             (is_indexed<Op> ? 32 : 64) / static_cast<int>(std::bit_ceil(sizeof(typename Op::Wide))));

// __shfl_xor_sync for a value of any size.
template <class T> __device__ __forceinline__ T shuffle_xor_words(T value, int lanes) {
  if constexpr (sizeof(T) <= 8) {
    return __shfl_xor_sync(kAllLanes, value, lanes);
  } else {
    auto words = std::bit_cast<Vector<uint64_t, sizeof(T) / 8>>(value);
#pragma unroll
    for (uint64_t& w : words.v) w = __shfl_xor_sync(kAllLanes, w, lanes);
    return std::bit_cast<T>(words);
  }
}

// All-reduce within groups of `lanes` neighboring threads of a warp, a power of two. Each thread gets the
// combination of its group's values. All threads of the warp must call it.
template <class Op>
__device__ __forceinline__ typename Op::Wide merge_lanes(const Op& op, typename Op::Wide a, int lanes) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) {
    if (d >= lanes) continue;
    const typename Op::Wide b = shuffle_xor_words(a, d);
    // The lower thread's value first, in both threads.
    a = threadIdx.x & d ? op.merge(b, a) : op.merge(a, b);
  }
  return a;
}

template <class Wide, int threads> struct MergedWarps {
  Wide v[threads / kWarp];
};
// All-reduce over a block of `threads` threads, in the order of threadIdx.x. All threads must call it, once
// per kernel. The launch provides sizeof(MergedWarps) bytes of dynamic shared memory.
template <int threads, class Op>
__device__ __forceinline__ typename Op::Wide merge_block(const Op& op, typename Op::Wide a) {
  constexpr int kWarps = threads / kWarp;
  a = merge_lanes(op, a, kWarp);
  auto& warps = shared_memory<MergedWarps<typename Op::Wide, threads>>();
  if (threadIdx.x % kWarp == 0) warps.v[threadIdx.x / kWarp] = a;
  __syncthreads();
  return merge_lanes(op, warps.v[threadIdx.x % kWarps], kWarps);
}

// Returns the combination of thread `lane`'s share of the contiguous elements p[0, n), which `lanes` threads
// divide in a cyclic order: elements one by one up to the first aligned address, then vectors, then the rest
// one by one. N is the index type: int for short rows, which takes fewer registers.
template <class Op, class N>
__device__ __forceinline__ typename Op::Wide reduce_span(const Op& op, const typename Op::In* p, N n,
                                                         int lane, int lanes) {
  using In = typename Op::In;
  using Wide = typename Op::Wide;
  constexpr int kVector = row_vector_of<Op>;
  Wide total = static_cast<Wide>(op.start());
  const auto take_single = [&](N from, N to) {  // for fewer than kVector elements
    for (N i = from + lane; i < to; i += lanes)
      total = op.merge(total, static_cast<Wide>(step(op, op.start(), p[i], i)));
  };
  const auto misaligned =
      static_cast<N>(reinterpret_cast<uintptr_t>(p) % (kVector * sizeof(In)) / sizeof(In));
  const N head = misaligned ? std::min<N>(n, kVector - misaligned) : 0;
  const N vectors = (n - head) / kVector;
  take_single(0, head);
  for (N at = lane; at < vectors;) {
    typename Op::Lane part[kVector];
#pragma unroll
    for (int k = 0; k < kVector; ++k) part[k] = op.start();
    const auto take = [&] {
      const auto v = load<kVector>(p + head + at * kVector);
#pragma unroll
      for (int k = 0; k < kVector; ++k) part[k] = step(op, part[k], v.v[k], head + at * kVector + k);
      at += lanes;
    };
    if (at + (kLaneSteps - 1) * lanes < vectors) {
#pragma unroll 4
      for (int s = 0; s < kLaneSteps; ++s)
        take();  // without a condition, so that several loads are in flight
    } else {
      while (at < vectors) take();
    }
#pragma unroll
    for (int k = 0; k < kVector; ++k) total = op.merge(total, static_cast<Wide>(part[k]));
  }
  take_single(head + vectors * kVector, n);
  return total;
}

// out[row] = op over n of x[rows, n], for n <= kShort. `lanes` neighboring threads of a warp reduce a row, so
// a block has kThreads / lanes rows. The launch bound of 4 blocks per multiprocessor keeps ptxas from
// spilling registers of some ops to reach 8 blocks.
template <class Op>
__global__ void __launch_bounds__(kThreads, 4)
    short_rows(Op op, typename Op::Out* out, const typename Op::In* x, int64_t rows, int64_t n, int lanes) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  const int lane = threadIdx.x % lanes;
  auto total = static_cast<typename Op::Wide>(op.start());
  if (row < rows) total = reduce_span(op, x + row * n, static_cast<int>(n), lane, lanes);
  total = merge_lanes(op, total, lanes);
  if (row < rows && lane == 0) out[row] = finish(op, total, row);
}

// out[row, p] = op over x[row, p * piece : min(n, (p + 1) * piece)], for `pieces` pieces p of each row. Block
// row * pieces + p reduces one piece; neighboring threads take neighboring vectors. Warps merge at the end.
template <class Op>
__global__ void __launch_bounds__(kThreads, least_blocks<Op>)
    long_rows(Op op, typename Op::Out* out, const typename Op::In* x, int64_t n, int64_t pieces,
              int64_t piece) {
  const int64_t row = blockIdx.x / pieces, from = blockIdx.x % pieces * piece;
  const int64_t length = std::min(n - from, piece);
  auto total = reduce_span(op, x + row * n + from, length, threadIdx.x, kThreads);
  total = merge_block<kThreads>(op, total);
  if (threadIdx.x == 0) out[blockIdx.x] = finish(op, offset_index(op, total, from), blockIdx.x);
}

// The shared memory of columns(): a Wide value per column and thread.
template <class Wide, int vector> struct ThreadValues {
  Wide v[vector][kThreads];
};

// out[o, p, column] = op over x[o, p * piece : min(n, (p + 1) * piece), column], for `pieces` pieces p of n.
// A block reduces one piece of `lanes` * `vector` neighboring columns (a tile). Thread t has `vector` of
// these columns, from t % lanes * vector on, in every (kThreads / lanes)-th row from t / lanes on. The groups
// of `lanes` threads are then merged by a tree in shared memory.
template <class Op, int vector>
__global__ void __launch_bounds__(kThreads, least_blocks<Op>)
    columns(Op op, typename Op::Out* out, const typename Op::In* x, int64_t n, int64_t inner, int64_t pieces,
            int64_t piece, int lanes) {
  using In = typename Op::In;
  using Wide = typename Op::Wide;
  const int64_t tiles = blocks_for(inner, int64_t(lanes) * vector);
  const int64_t tile = blockIdx.x % tiles, o = blockIdx.x / tiles / pieces;
  const int64_t from = blockIdx.x / tiles % pieces * piece, to = std::min(n, from + piece);
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = kThreads / lanes;
  const int64_t column = (tile * lanes + lane) * vector;
  Wide total[vector];
#pragma unroll
  for (int k = 0; k < vector; ++k) total[k] = static_cast<Wide>(op.start());
  if (column < inner) {
    const In* p = x + o * n * inner + column;
    for (int64_t row = from + group; row < to;) {
      typename Op::Lane part[vector];
#pragma unroll
      for (int k = 0; k < vector; ++k) part[k] = op.start();
      const auto take = [&] {
        const auto v = load<vector>(p + row * inner);
#pragma unroll
        for (int k = 0; k < vector; ++k) part[k] = step(op, part[k], v.v[k], row - from);
        row += groups;
      };
      if (row + int64_t(kLaneSteps - 1) * groups < to) {
#pragma unroll 4
        for (int s = 0; s < kLaneSteps; ++s) take();
      } else {
        while (row < to) take();
      }
#pragma unroll
      for (int k = 0; k < vector; ++k) total[k] = op.merge(total[k], static_cast<Wide>(part[k]));
    }
  }
  auto& threads = shared_memory<ThreadValues<Wide, vector>>();
#pragma unroll
  for (int k = 0; k < vector; ++k) threads.v[k][threadIdx.x] = total[k];
  for (int half = groups / 2; half > 0; half /= 2) {
    __syncthreads();
    if (group >= half) continue;
#pragma unroll
    for (int k = 0; k < vector; ++k) {
      total[k] = op.merge(total[k], threads.v[k][threadIdx.x + half * lanes]);
      threads.v[k][threadIdx.x] = total[k];
    }
  }
  if (group != 0 || column >= inner) return;
  const int64_t at = blockIdx.x / tiles * inner + column;
#pragma unroll
  for (int k = 0; k < vector; ++k) out[at + k] = finish(op, offset_index(op, total[k], from), at + k);
}

// A division of n elements into `count` pieces of `length` elements; the last piece may be shorter.
struct Pieces {
  int64_t count, length;
};
// Divides n into pieces of at least `least` elements if `blocks` blocks alone would not fill a device. The
// length of a piece is a multiple of 16, which keeps pieces aligned.
inline Pieces pieces_for(int64_t n, int64_t blocks, int64_t least) {
  const int64_t most = std::min(blocks_for(n, least), blocks_for(kTargetBlocks, blocks));
  if (most <= 1) return {1, n};
  const int64_t length = blocks_for(blocks_for(n, most), 16) * 16;
  return {blocks_for(n, length), length};
}

// Returns the smallest power of two that is at least n, but at most `most`.
inline int power_of_two_from(int64_t n, int most) {
  int lanes = 1;
  while (lanes < most && lanes < n) lanes *= 2;
  return lanes;
}

inline Pieces row_pieces(int64_t rows, int64_t n) {
  return n > kShort ? pieces_for(n, rows, kPiece) : Pieces{1, n};
}

template <class Op>
void run_short_rows(const char* name, const Op& op, typename Op::Out* out, const typename Op::In* x,
                    int64_t rows, int64_t n, cudaStream_t stream) {
  const int lanes = power_of_two_from(blocks_for(n, row_vector_of<Op>), kWarp);
  launch(name, short_rows<Op>, {blocks_for(rows, kThreads / lanes), kThreads}, stream, op, out, x, rows, n,
         lanes);
}
template <class Op>
void run_long_rows(const char* name, const Op& op, typename Op::Out* out, const typename Op::In* x,
                   int64_t rows, int64_t n, const Pieces& pieces, cudaStream_t stream) {
  launch(name, long_rows<Op>,
         {rows * pieces.count, kThreads, sizeof(MergedWarps<typename Op::Wide, kThreads>)}, stream, op, out,
         x, n, pieces.count, pieces.length);
}

// The launch configuration of columns() for [outer, n, inner].
struct ColumnPlan {
  int vector, lanes;  // columns per thread, and threads per row of a block
  int64_t tiles;      // number of tiles of columns
  Pieces pieces;
};
template <class Op>
ColumnPlan plan_columns(const typename Op::In* x, int64_t outer, int64_t n, int64_t inner) {
  constexpr int kVector = columns_of<Op>;
  const bool fits = inner % kVector == 0 && is_aligned(x, kVector * sizeof(*x));
  ColumnPlan plan{fits ? kVector : 1, 0, 0, {}};
  const int64_t threads = blocks_for(inner, plan.vector);
  plan.lanes = power_of_two_from(threads, kWarp);
  // With few rows, more threads of a block are side by side, so that each still has at least 4 rows.
  while (plan.lanes < kThreads && plan.lanes < threads && kThreads / plan.lanes > blocks_for(n, 4))
    plan.lanes *= 2;
  plan.tiles = blocks_for(inner, int64_t(plan.lanes) * plan.vector);
  plan.pieces = pieces_for(n, outer * plan.tiles, int64_t(kLaneSteps) * (kThreads / plan.lanes));
  return plan;
}

template <class Op>
void run_columns(const char* name, const Op& op, typename Op::Out* out, const typename Op::In* x,
                 int64_t outer, int64_t n, int64_t inner, const ColumnPlan& plan, cudaStream_t stream) {
  const auto start = [&]<int vector>() {
    launch(
        name, columns<Op, vector>,
        {outer * plan.pieces.count * plan.tiles, kThreads, sizeof(ThreadValues<typename Op::Wide, vector>)},
        stream, op, out, x, n, inner, plan.pieces.count, plan.pieces.length, plan.lanes);
  };
  constexpr int kVector = columns_of<Op>;
  if constexpr (kVector > 1)
    if (plan.vector == kVector) return start.template operator()<kVector>();
  start.template operator()<1>();
}

}  // namespace reduce_detail

using reduce_detail::merge_block, reduce_detail::MergedWarps;

// Returns the number of bytes of workspace on the device that reduce() needs, aligned to 16 bytes; 0: none.
template <class Op>
int64_t reduce_workspace(const typename Op::In* x, int64_t outer, int64_t n, int64_t inner) {
  using namespace reduce_detail;  // NOLINT
  const int64_t pieces =
      inner == 1 ? row_pieces(outer, n).count : plan_columns<Op>(x, outer, n, inner).pieces.count;
  return pieces > 1 ? outer * pieces * inner * static_cast<int64_t>(sizeof(typename Op::Wide)) : 0;
}

// out[rows] = op over n of x[rows, n]. With n = 0 the results are those of no elements. `name` is the
// kernel's name in errors and profiles. `workspace`: as for reduce(), with outer = rows and inner = 1.
template <class Op>
void reduce_rows(const char* name, const Op& op, typename Op::Out* out, const typename Op::In* x,
                 int64_t rows, int64_t n, void* workspace, cudaStream_t stream) {
  using namespace reduce_detail;  // NOLINT
  if (rows == 0) return;
  auto* const partial = static_cast<typename Op::Wide*>(workspace);
  const Pieces pieces = row_pieces(rows, n);
  if (n <= kShort) return run_short_rows(name, op, out, x, rows, n, stream);
  if (pieces.count == 1) return run_long_rows(name, op, out, x, rows, n, pieces, stream);
  run_long_rows(name, Partial<Op>{op}, partial, x, rows, n, pieces, stream);
  run_short_rows(name, Merged<Op>{op}, out, partial, rows, pieces.count, stream);
}

// out[outer, inner] = op over n of x[outer, n, inner], row-major. `workspace` has reduce_workspace() bytes,
// or is null if that is 0; it must stay valid until the kernels have run.
template <class Op>
void reduce(const char* name, const Op& op, typename Op::Out* out, const typename Op::In* x, int64_t outer,
            int64_t n, int64_t inner, void* workspace, cudaStream_t stream) {
  using namespace reduce_detail;  // NOLINT
  if (outer == 0 || inner == 0) return;
  if (inner == 1) return reduce_rows(name, op, out, x, outer, n, workspace, stream);
  auto* const partial = static_cast<typename Op::Wide*>(workspace);
  const ColumnPlan plan = plan_columns<Op>(x, outer, n, inner);
  if (plan.pieces.count == 1) return run_columns(name, op, out, x, outer, n, inner, plan, stream);
  run_columns(name, Partial<Op>{op}, partial, x, outer, n, inner, plan, stream);
  ColumnPlan second = plan_columns<Merged<Op>>(partial, outer, plan.pieces.count, inner);
  second.pieces = {1, plan.pieces.count};
  run_columns(name, Merged<Op>{op}, out, partial, outer, plan.pieces.count, inner, second, stream);
}

}  // namespace gradus::cuda
