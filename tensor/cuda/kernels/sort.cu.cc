// CUDA kernels around merge_sort.h: elements are mapped to 64-bit keys of the same order, the pairs (key, index) are
// sorted, and values are copied by index. Rows of several columns are sorted by one column after the other, the last
// one first (LSD radix sort), since the sort is stable.
#include "gradus/tensor/cuda/kernels/sort.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/merge_sort.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;

// Returns the key of element `at`. Floats: the bits as f64 with the sign bit flipped if positive, all bits flipped if
// negative, so that the order of the bits is that of the numbers; NaN: the largest key.
__device__ __forceinline__ uint64_t key_of(const void* x, DType dtype, int64_t at) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if (!is_floating(dtype)) return static_cast<uint64_t>(load_as<int64_t>(x, dtype, at)) ^ kSign;
  const double v = load_as<double>(x, dtype, at) + 0.0;  // -0 becomes 0
  const auto bits = std::bit_cast<uint64_t>(v);
  return v != v ? std::numeric_limits<uint64_t>::max() : bits & kSign ? ~bits : bits | kSign;
}

// Keys of x[outer, n, inner] in the order [outer, inner, n], xor `flip`: 0, or all bits for a descending sort.
struct SliceKeys {
  const void* x;
  DType dtype;
  int64_t n, inner;
  uint64_t flip;

  __device__ __forceinline__ uint64_t operator()(int64_t e) const {
    const int64_t row = e / n, i = e % n;
    return key_of(x, dtype, (row / inner * n + i) * inner + row % inner) ^ flip;
  }
};

// Keys of a column of x[n, m], whose rows are in the order `order`; a null `order` is 0, 1, ...
struct ColumnKeys {
  const void* x;
  DType dtype;
  const int64_t* order;
  int64_t m, column;

  __device__ __forceinline__ uint64_t operator()(int64_t i) const {
    return key_of(x, dtype, (order ? order[i] : i) * m + column);
  }
};

// values[o, i, j] = x[o, sorted[o, j, i].index, j] and indices[o, i, j] = this index. A thread has one element.
__global__ void __launch_bounds__(kThreads)
    gather_sorted(void* values, int64_t* indices, const void* x, DType dtype, const SortedElement* sorted,
                  SortShape s) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= s.outer * s.k * s.inner) return;
  const int64_t j = e % s.inner, i = e / s.inner % s.k, o = e / s.inner / s.k;
  const int64_t index = sorted[(o * s.inner + j) * s.k + i].index, from = (o * s.n + index) * s.inner + j;
  indices[e] = index;
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    static_cast<T*>(values)[e] = static_cast<const T*>(x)[from];
  });
}

// to[i] = order[sorted[i].index]; a null `order` is 0, 1, ... A thread has one index.
__global__ void __launch_bounds__(kThreads)
    compose_order(int64_t* to, const int64_t* order, const SortedElement* sorted, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) to[i] = order ? order[sorted[i].index] : sorted[i].index;
}

// Rounds a number of 8-byte elements up, so that what follows them is aligned to 16 bytes.
int64_t round_up_to_even(int64_t count) { return count + count % 2; }
MergeSortArgs merge_of(const SortShape& s) { return {s.outer * s.inner, s.n, s.k}; }

}  // namespace

int64_t sort_workspace(const SortShape& s) { return merge_sort_workspace(merge_of(s)); }

void sort(const char* op, const View& values, int64_t* indices, const View& x, const SortShape& s,
          bool descending, void* workspace, cudaStream_t stream) {
  const int64_t kept = s.outer * s.k * s.inner;
  if (kept == 0) return;
  const SliceKeys keys{x.data, x.dtype, s.n, s.inner, descending ? ~uint64_t{0} : 0};
  const SortedElement* const sorted = merge_sort(op, merge_of(s), keys, workspace, stream);
  launch(op, gather_sorted, {blocks_for(kept, kThreads), kThreads}, stream, values.data, indices, x.data,
         x.dtype, sorted, s);
}

int64_t sort_rows_workspace(int64_t n) {
  return round_up_to_even(n) * int64_t{sizeof(int64_t)} + merge_sort_workspace({1, n, n});
}

void sort_rows(const char* op, int64_t* order, const View& x, int64_t n, int64_t m, void* workspace,
               cudaStream_t stream) {
  // The orders alternate between `order` and `spare`; the last one is in `order`.
  auto* const spare = static_cast<int64_t*>(workspace);
  const int64_t* from = nullptr;
  for (int64_t column = m - 1; column >= 0; --column) {
    int64_t* const to = column % 2 ? spare : order;
    const ColumnKeys keys{x.data, x.dtype, from, m, column};
    const SortedElement* const sorted = merge_sort(op, {1, n, n}, keys, spare + round_up_to_even(n), stream);
    launch(op, compose_order, {blocks_for(n, kThreads), kThreads}, stream, to, from, sorted, n);
    from = to;
  }
}

}  // namespace gradus::cuda
