// CUDA kernels of sort, k-th value, median, mode and the lexicographic sort of rows, on top of merge_sort.h:
// elements are mapped to 64-bit keys of the same order, pairs (key, index) are sorted stably, and the sorted
// or selected values are gathered by index. Matrix rows are sorted by one column at a time, last column
// first, as in LSD radix sort.
#include "gradus/tensor/cuda/kernels/sort/sort.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/merge_sort.h"
#include "gradus/tensor/cuda/kernels/thread_groups.h"

namespace gradus::cuda {
namespace {

using raw::Selection;

constexpr int kThreads = 256;
constexpr uint64_t kNanKey = std::numeric_limits<uint64_t>::max();

// Returns the key of element `at`. Floats: the bits as f64 with the sign bit flipped if positive, all bits
// flipped if negative, so that the order of the bits is that of the numbers; NaN: kNanKey, the largest key.
__device__ __forceinline__ uint64_t key_of(const void* x, DType dtype, int64_t at) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if (!is_floating(dtype)) return static_cast<uint64_t>(load_as<int64_t>(x, dtype, at)) ^ kSign;
  const double v = load_as<double>(x, dtype, at) + 0.0;  // -0 becomes 0
  const auto bits = std::bit_cast<uint64_t>(v);
  return v != v ? kNanKey : bits & kSign ? ~bits : bits | kSign;
}

// Keys of x[outer, n, inner] in the order [outer, inner, n], xor `flip`: 0, or all bits for a descending
// sort.
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

// values[o, i, j] = x[o, sorted[o, j, i].index, j] and indices[o, i, j] = this index. A thread has one
// element.
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

// Returns the first i < n for which holds(i), or n. holds(i) implies holds(i + 1).
template <class F> __device__ __forceinline__ int64_t first_where(int64_t n, F&& holds) {
  int64_t first = 0, last = n;
  while (first < last) {
    const int64_t middle = (first + last) / 2;
    if (holds(middle))
      last = middle;
    else
      first = middle + 1;
  }
  return first;
}

// values[slice] = x[slice, index] and indices[slice] = index.
struct SelectedOutput {
  void* values;
  int64_t* indices;
  const void* x;
  DType dtype;
  SelectShape s;

  __device__ __forceinline__ void put(int64_t slice, int64_t index) const {
    indices[slice] = index;
    const int64_t from = (slice / s.inner * s.n + index) * s.inner + slice % s.inner;
    with_type(dtype, [&](auto type) {
      using T = decltype(type);
      static_cast<T*>(values)[slice] = static_cast<const T*>(x)[from];
    });
  }
};

// Selects element k of sorted[slice, count], or the lower median. The `count` first elements of a slice are
// sorted, all n for a median. A thread has a slice.
__global__ void __launch_bounds__(kThreads)
    select_by_position(SelectedOutput to, const SortedElement* sorted, int64_t count) {
  const int64_t slice = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (slice >= to.s.outer * to.s.inner) return;
  const SortedElement* const elements = sorted + slice * count;
  int64_t position = to.s.k;
  if (to.s.what != Selection::kKth) {
    int64_t numbers = count;  // elements that are not NaN
    if (is_floating(to.dtype))
      numbers = first_where(count, [&](int64_t i) { return elements[i].key == kNanKey; });
    position = std::max<int64_t>(numbers - 1, 0) / 2;
    if (to.s.what == Selection::kMedian && numbers < count) position = numbers;  // the first NaN
  }
  to.put(slice, elements[position].index);
}

struct LargerOp {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a < b ? b : a; }
};
struct ModeScratch {
  uint64_t best_run[kBlockThreads];
};

// Selects the last element of the longest run of equal keys of sorted[slice, n]; of several longest runs, of
// the first one. A thread group has a slice; a thread finds the length of a run at the run's last element.
__global__ void __launch_bounds__(kBlockThreads)
    select_mode(SelectedOutput to, const SortedElement* sorted, ThreadGroups groups) {
  const ThreadIndex thread = thread_index(groups);
  const SortedElement* const elements = sorted + thread.first;
  // Length of the run in the upper 32 bits, complement of its last position in the lower 32: n < 2^32.
  uint64_t best_run = 0;
  for_each_vector<1>(groups, thread, [&](int64_t i) {
    const uint64_t key = elements[i].key;
    if (i + 1 < groups.n && elements[i + 1].key == key) return;
    const int64_t begin = first_where(i, [&](int64_t j) { return elements[j].key == key; });
    best_run = LargerOp()(best_run, static_cast<uint64_t>(i + 1 - begin) << 32 | static_cast<uint32_t>(~i));
  });
  best_run = merge_group(groups, best_run, shared_memory<ModeScratch>().best_run, LargerOp());
  if (thread.rank == 0 && thread.limit > 0)
    to.put(thread.row, elements[static_cast<uint32_t>(~best_run)].index);
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
MergeSortArgs merge_of(const SelectShape& s) {
  return {s.outer * s.inner, s.n, s.what == Selection::kKth ? s.k + 1 : s.n};
}

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

int64_t select_workspace(const SelectShape& s) { return merge_sort_workspace(merge_of(s)); }

void select(const char* op, const View& values, int64_t* indices, const View& x, const SelectShape& s,
            void* workspace, cudaStream_t stream) {
  const MergeSortArgs merge = merge_of(s);
  if (merge.rows == 0) return;
  const SliceKeys keys{x.data, x.dtype, s.n, s.inner, 0};
  const SortedElement* const sorted = merge_sort(op, merge, keys, workspace, stream);
  const SelectedOutput to{values.data, indices, x.data, x.dtype, s};
  if (s.what != Selection::kMode)
    return launch(op, select_by_position, {blocks_for(merge.rows, kThreads), kThreads}, stream, to, sorted,
                  merge.count);
  const ThreadGroups groups = thread_groups_for(merge.rows, s.n, 1, 1, 32);
  launch(op, select_mode, {groups.blocks(), kBlockThreads, sizeof(ModeScratch)}, stream, to, sorted, groups);
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
