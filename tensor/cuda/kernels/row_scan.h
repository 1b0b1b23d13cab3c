// Inclusive scans along n of arrays [outer, n, inner] by an associative operation, on CUDA devices. Rows are
// divided into pieces: a launch combines the elements of each piece, these totals are scanned recursively,
// and a last launch scans each piece from the total of the pieces before it. A single piece takes one launch.
// The order of operations depends on sizes alone, so results repeat bit for bit.
// Source: Harris, Sengupta and Owens, Parallel Prefix Sum (Scan) with CUDA, GPU Gems 3, chapter 39.
//
// The operation and the elements are trivially copyable:
//   struct Op { using State = ...; __device__ State operator()(State earlier, State later) const; };
//   struct Elements {
//     // Element i of a row in the order of the scan, at offset `at` of the array.
//     __device__ State load(int64_t at, int64_t i) const;
//     __device__ void store(int64_t at, const State& result) const;
//   };
// A State has no padding, and a size that is a multiple of 8.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/scans.h"  // ScanShape

namespace gradus::cuda {

// The operation of sums, and the elements of an array that is scanned in place.
template <class S> struct PrefixSum {
  using State = S;
  __device__ __forceinline__ S operator()(S earlier, S later) const { return earlier + later; }
};
template <class State> struct InPlaceElements {
  State* x;
  __device__ __forceinline__ State load(int64_t at, int64_t) const { return x[at]; }
  __device__ __forceinline__ void store(int64_t at, const State& result) const { x[at] = result; }
};

namespace row_scan_detail {

inline constexpr int kThreads = 256;
inline constexpr int64_t kTargetThreads = 1 << 18;  // that fill a device
inline constexpr int64_t kMinWarpPiece = 1024;      // elements
inline constexpr int64_t kMinThreadPiece = 256;     // elements

// Each row has `count` pieces of `length` elements, the last one of `length` or less. inner == 1: a warp has
// a piece, its lanes neighboring elements. inner > 1: a thread has a piece, neighboring threads neighboring
// rows.
struct RowPartition {
  ScanShape scan;
  int64_t count, length;

  int64_t total() const { return scan.outer * scan.inner * count; }
  int64_t threads() const { return total() * (scan.inner == 1 ? kWarp : 1); }
};
inline RowPartition partition_of(const ScanShape& scan) {
  RowPartition p{scan, 1, scan.n};
  const int64_t max_count = scan.n / (scan.inner == 1 ? kMinWarpPiece : kMinThreadPiece);
  const int64_t count = std::max<int64_t>(1, std::min(kTargetThreads / p.threads(), max_count));
  p.length = blocks_for(scan.n, count);
  p.count = blocks_for(scan.n, p.length);
  return p;
}

// The piece of the calling warp or thread: the elements begin <= i < end of a row in the order of the scan,
// empty for threads beyond the last piece. Element i is at offset first + i * step of the array, the entry
// of the piece in `totals` at total_offset.
struct PieceIndex {
  int64_t piece, begin, end, first, step, total_offset;
};
template <bool warp_per_piece> __device__ __forceinline__ PieceIndex piece_index(const RowPartition& p) {
  const ScanShape& s = p.scan;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x,
                item = warp_per_piece ? thread / kWarp : thread;
  const int64_t column = warp_per_piece ? 0 : item % s.inner;
  const int64_t piece = item / s.inner % p.count, outer = item / s.inner / p.count;
  PieceIndex index;
  index.piece = piece;
  index.begin = piece * p.length;
  index.end = outer < s.outer ? std::min(s.n, index.begin + p.length) : index.begin;
  index.step = s.reverse ? -s.inner : s.inner;
  index.first = outer * s.n * s.inner + column + (s.reverse ? (s.n - 1) * s.inner : 0);
  index.total_offset = (outer * p.count + piece) * s.inner + column;
  return index;
}

// Returns `state` of another lane of the warp.
template <class State> __device__ __forceinline__ State shuffle(const State& state, int lane) {
  constexpr int kWords = sizeof(State) / 8;
  static_assert(sizeof(State) % 8 == 0);
  struct Words {
    uint64_t v[kWords];
  };
  auto words = __builtin_bit_cast(Words, state);
#pragma unroll
  for (int w = 0; w < kWords; ++w) words.v[w] = __shfl_sync(kAllLanes, words.v[w], lane);
  return __builtin_bit_cast(State, words);
}

// With only_totals (first launch): totals[o, p, j] = x[o, b, j] op ... op x[o, e - 1, j], piece p = [b, e).
// Otherwise (last launch): result[o, i, j] = x[o, 0, j] op ... op x[o, i, j], where totals[o, p, j] already
// combines pieces 0 to p. Indices are in scan order; threads map to pieces as in RowPartition.
template <bool warp_per_piece, bool only_totals, class Op, class Elements>
__global__ void __launch_bounds__(kThreads)
    scan_pieces(Op op, Elements elements, typename Op::State* totals, RowPartition p) {
  using State = typename Op::State;
  constexpr int kLanes = warp_per_piece ? kWarp : 1;
  constexpr int kInFlight = sizeof(State) == 8 ? 4 : 2;  // elements that a thread loads at once
  const PieceIndex index = piece_index<warp_per_piece>(p);
  const int lane = warp_per_piece ? threadIdx.x % kWarp : 0;
  State carry{};  // all earlier elements combined, if has_carry
  bool has_carry = !only_totals && index.piece > 0 && index.begin < index.end;
  if (has_carry) carry = totals[index.total_offset - p.scan.inner];
  for (int64_t i = index.begin; i < index.end; i += kInFlight * kLanes) {
    State batch[kInFlight]{};
#pragma unroll
    for (int e = 0; e < kInFlight; ++e) {
      const int64_t element = i + e * kLanes + lane;
      if (element < index.end) batch[e] = elements.load(index.first + element * index.step, element);
    }
#pragma unroll
    for (int e = 0; e < kInFlight; ++e) {
      const int64_t first = i + e * kLanes;  // the element of lane 0
      if (first >= index.end) break;
      State inclusive = batch[e];
      if constexpr (warp_per_piece) {
        // Lanes beyond the piece have any state, which reaches no lane before them.
#pragma unroll
        for (int d = 1; d < kWarp; d *= 2) {
          const State earlier = shuffle(inclusive, lane >= d ? lane - d : lane);
          if (lane >= d) inclusive = op(earlier, inclusive);
        }
      }
      if (has_carry) inclusive = op(carry, inclusive);
      if constexpr (!only_totals)
        if (first + lane < index.end) elements.store(index.first + (first + lane) * index.step, inclusive);
      carry = inclusive;
      if constexpr (warp_per_piece)
        carry = shuffle(inclusive, static_cast<int>(std::min<int64_t>(kWarp, index.end - first)) - 1);
      has_carry = true;
    }
  }
  if constexpr (only_totals)
    if (lane == 0 && index.begin < index.end) totals[index.total_offset] = carry;
}

}  // namespace row_scan_detail

// Returns the bytes of workspace of scan_rows(), aligned to 8, for states of state_bytes each.
inline int64_t scan_rows_workspace(const ScanShape& scan, int64_t state_bytes) {
  if (scan.outer * scan.n * scan.inner == 0) return 0;
  const row_scan_detail::RowPartition p = row_scan_detail::partition_of(scan);
  if (p.count == 1) return 0;
  return p.total() * state_bytes + scan_rows_workspace({scan.outer, p.count, scan.inner}, state_bytes);
}

// Queues the scan of all rows. elements.store() may write what elements.load() of the same element reads.
template <class Op, class Elements>
void scan_rows(const char* op_name, const ScanShape& scan, const Op& op, const Elements& elements,
               void* workspace, cudaStream_t stream) {
  using namespace row_scan_detail;  // NOLINT
  using State = typename Op::State;
  if (scan.outer * scan.n * scan.inner == 0) return;
  const RowPartition p = partition_of(scan);
  const Grid grid{blocks_for(p.threads(), kThreads), kThreads};
  const bool warps = scan.inner == 1;
  auto* const totals = static_cast<State*>(workspace);
  if (p.count > 1) {
    launch(op_name, warps ? scan_pieces<true, true, Op, Elements> : scan_pieces<false, true, Op, Elements>,
           grid, stream, op, elements, totals, p);
    scan_rows(op_name, {scan.outer, p.count, scan.inner}, op, InPlaceElements<State>{totals},
              totals + p.total(), stream);
  }
  launch(op_name, warps ? scan_pieces<true, false, Op, Elements> : scan_pieces<false, false, Op, Elements>,
         grid, stream, op, elements, totals, p);
}

}  // namespace gradus::cuda
