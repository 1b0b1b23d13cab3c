// Merge sort of the rows of [rows, n] by 64-bit keys on CUDA devices, or of the first `count` elements of
// each row only. It is stable: equal keys keep the order of their indices, as by std::stable_sort. Tiles of
// up to 256 elements are sorted into runs (bitonic sort; elements are exchanged by shuffles and shared
// memory), and runs are merged in pairs, one launch for each doubling. The host does not wait, and results do
// not depend on the order of threads.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {

// A sorted element: its key, and its index in its row.
struct alignas(16) SortedElement {
  uint64_t key;
  int64_t index;
};

// The shape of a sort, and its output: the first `count` of the n sorted elements of each row. rows >= 1,
// 1 <= count <= n.
struct MergeSortArgs {
  int64_t rows, n, count;
  int64_t* indices =
      nullptr;  // [rows, count] gets the indices of the elements; null: merge_sort() returns the sorted elements
};

namespace merge_sort_detail {

inline constexpr int kThreads = 256;

__device__ __forceinline__ bool is_before(const SortedElement& a, const SortedElement& b) {
  return a.key < b.key || (a.key == b.key && a.index < b.index);
}

// The layout of the sorted elements of each row: `count` runs, stored one after another, each a sorted sequence
// of `width` elements, the last run of `last_width`.
struct Runs {
  int64_t count, width, last_width;

  GRADUS_HD int64_t row_length() const { return (count - 1) * width + last_width; }
  GRADUS_HD int64_t length(int64_t run) const {
    return run < count - 1 ? width : run < count ? last_width : 0;
  }
};

// The output of a sort or merge: `runs`, or if that is null, the indices of the elements.
struct SortOutput {
  SortedElement* runs;
  int64_t* indices;

  __device__ __forceinline__ void put(int64_t at, const SortedElement& e) const {
    if (runs)
      store_vector(runs + at, e);
    else
      indices[at] = e.index;
  }
};

// Shared memory of exchange().
struct ExchangeBuffer {
  SortedElement v[kThreads];
};
// Returns `local` of the thread threadIdx.x ^ bit, where `bit` is a power of two. All threads of the block must
// call exchange() with the same `bit`.
__device__ __forceinline__ SortedElement exchange(const SortedElement& local, int bit) {
  if (bit < kWarp)
    return {__shfl_xor_sync(kAllLanes, local.key, bit), __shfl_xor_sync(kAllLanes, local.index, bit)};
  auto& elements = shared_memory<ExchangeBuffer>();
  elements.v[threadIdx.x] = local;
  __syncthreads();
  const auto other = load_vector<SortedElement>(&elements.v[threadIdx.x ^ bit]);
  __syncthreads();
  return other;
}

// Sorts tiles of `tile` neighboring elements of a row (bitonic sort); `tile` is a power of two and at most
// kThreads. Tile r of a row gives run r, of which the first runs.width elements are stored. A thread has one
// element, `tile` neighboring threads have a tile. Threads beyond the row have elements that sort last.
template <class KeyOf>
__global__ void __launch_bounds__(kThreads, 4)
    sort_tiles(SortOutput to, Runs runs, KeyOf key_of, int64_t rows, int64_t n, int64_t tile) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x, tile_index = thread / tile;
  const int64_t row = tile_index / runs.count, run = tile_index % runs.count, position = thread % tile;
  const int64_t index = run * tile + position;
  const bool in_bounds = row < rows && index < n;
  SortedElement local{std::numeric_limits<uint64_t>::max(), index};
  if (in_bounds) local.key = key_of(row * n + index);
  for (int run_length = 1; run_length < tile; run_length *= 2)
    for (int bit = run_length; bit > 0; bit /= 2) {
      const SortedElement other = exchange(local, bit);
      const bool is_ascending = (position & (2 * run_length)) == 0;
      const bool keeps_smaller = ((position & bit) == 0) == is_ascending;
      if (is_before(other, local) == keeps_smaller) local = other;
    }
  if (in_bounds && position < runs.width)
    to.put(row * runs.row_length() + run * runs.width + position, local);
}

// Merges runs 2i and 2i + 1 of each row into run i, of which the first merged.width elements are stored; a run
// without a partner is copied. A thread has one element. The position of an element in the merged run is its
// position in its own run plus the number of elements in the other run that are before it (binary search).
static __global__ void __launch_bounds__(kThreads, 4)
    merge_runs(SortOutput to, Runs merged, const SortedElement* from, Runs runs, int64_t rows) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = i / runs.row_length();
  if (row >= rows) return;
  const int64_t index_in_row = i % runs.row_length(), run = index_in_row / runs.width;
  const auto local = load_vector<SortedElement>(from + i);
  const SortedElement* const other = from + row * runs.row_length() + (run ^ 1) * runs.width;
  int64_t low = 0, high = runs.length(run ^ 1);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (is_before(load_vector<SortedElement>(other + middle), local))
      low = middle + 1;
    else
      high = middle;
  }
  const int64_t position = index_in_row % runs.width + low;
  if (position < merged.width) to.put(row * merged.row_length() + run / 2 * merged.width + position, local);
}

// Elements in a tile of sort_tiles: n rounded up to a power of two, at most kThreads.
inline int64_t tile_of(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(n, kThreads))));
}
// The runs that sort_tiles stores. Of each tile at most s.count elements are kept.
inline Runs first_runs(const MergeSortArgs& s) {
  const int64_t tile = tile_of(s.n), count = blocks_for(s.n, tile);
  return {count, std::min(tile, s.count), std::min(s.count, s.n - (count - 1) * tile)};
}
// The runs that merge_runs stores from `r`, with at most `max_width` elements each.
inline Runs merged_runs(const Runs& r, int64_t max_width) {
  return {blocks_for(r.count, 2), std::min(2 * r.width, max_width),
          r.count % 2 ? r.last_width : std::min(r.width + r.last_width, max_width)};
}

}  // namespace merge_sort_detail

// Returns the bytes of workspace that merge_sort() needs, aligned to 16: the first runs of all rows twice, since
// merges alternate between the two halves.
inline int64_t merge_sort_workspace(const MergeSortArgs& s) {
  const merge_sort_detail::Runs runs = merge_sort_detail::first_runs(s);
  const int64_t halves = runs.count > 1 ? 2 : s.indices ? 0 : 1;
  return halves * s.rows * runs.row_length() * int64_t{sizeof(SortedElement)};
}

// Queues a sort by the keys key_of(i), which a device computes once for each element i of [rows, n], row-major.
// KeyOf is trivially copyable. Without s.indices, returns the array [rows, count] in the workspace that gets the
// sorted elements.
template <class KeyOf>
const SortedElement* merge_sort(const char* op, const MergeSortArgs& s, const KeyOf& key_of, void* workspace,
                                cudaStream_t stream) {
  using namespace merge_sort_detail;  // NOLINT
  const int64_t tile = tile_of(s.n);
  Runs runs = first_runs(s);
  auto* from = static_cast<SortedElement*>(workspace);
  SortedElement* to = from + s.rows * runs.row_length();
  const auto output_for = [&](const Runs& r, SortedElement* where) {
    return SortOutput{r.count > 1 || !s.indices ? where : nullptr, s.indices};
  };
  launch(op, sort_tiles<KeyOf>,
         {blocks_for(s.rows * runs.count * tile, kThreads), kThreads, sizeof(ExchangeBuffer)}, stream,
         output_for(runs, from), runs, key_of, s.rows, s.n, tile);
  while (runs.count > 1) {
    const Runs merged = merged_runs(runs, s.count);
    launch(op, merge_runs, {blocks_for(s.rows * runs.row_length(), kThreads), kThreads}, stream,
           output_for(merged, to), merged, from, runs, s.rows);
    std::swap(from, to);
    runs = merged;
  }
  return from;
}

}  // namespace gradus::cuda
