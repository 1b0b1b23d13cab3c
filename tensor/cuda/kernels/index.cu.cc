// CUDA kernels of indexing by index tensors. Reads copy words of up to 16 bytes, as rows and alignment allow. Writes
// sort the pairs (target, position of the index), so that all writes to one target are a run in the order of their
// positions: the last source of a run is assigned, or one thread combines the sources of a run in this order. No
// element is written by atomics, and results have the CPU's bits.
#include "gradus/tensor/cuda/kernels/index.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/merge_sort.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"
#include "gradus/tensor/ops/arithmetic.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLoadBatch = 16;  // elements that a thread loads at once before it combines them
constexpr uint64_t kNoTarget = std::numeric_limits<uint64_t>::max();  // sorts behind all targets
// The flat index of an invalid index. It stays negative when the terms of other dims are added, so that a read through
// it gives NaN, and a write is left out.
constexpr int64_t kInvalidFlatIndex = std::numeric_limits<int64_t>::min();

__device__ __forceinline__ bool is_valid(int64_t index, int64_t n) {
  return static_cast<uint64_t>(index) < static_cast<uint64_t>(n);
}

// out[o, i, j] = x[o, index[i], j], or with `per_element` x[o, index[o, i, j], j], in words W, of which a row has
// s.inner; `invalid` for an invalid index. A thread copies one word, neighboring threads neighboring words of out.
template <class W, bool per_element>
__global__ void __launch_bounds__(kThreads)
    read_indexed(W* out, const W* x, const int64_t* index, IndexedShape s, W invalid, ValueReports reports) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= s.selected()) return;
  const int64_t row = e / s.inner, j = e % s.inner, o = row / s.k, i = row % s.k;
  const int64_t position = per_element ? e : i, selected = index[position];
  W word = invalid;
  if (is_valid(selected, s.n))
    word = load_vector<W>(x + (o * s.n + selected) * s.inner + j);
  else if (per_element || e == i * s.inner)  // one thread reports index[i]
    report(reports, position, static_cast<uint64_t>(selected));
  store_vector(out + e, word);
}

// The key of the sort: the target in [outer, n, inner] of index[e], where e is a position in [outer, k, inner].
// kNoTarget for `skip` and for an invalid index, which is reported.
struct TargetOf {
  const int64_t* index;
  IndexedShape s;
  int64_t skip;
  ValueReports reports;

  __device__ __forceinline__ uint64_t operator()(int64_t e) const {
    const int64_t selected = index[e];
    if (!is_valid(selected, s.n)) report(reports, e, static_cast<uint64_t>(selected));
    if (!is_valid(selected, s.n) || selected == skip) return kNoTarget;
    const int64_t row = e / s.inner;
    return static_cast<uint64_t>((row / s.k * s.n + selected) * s.inner + e % s.inner);
  }
};

// out[o, sorted[i].key, j] = src[o, sorted[i].index, j] where i is the last of its run of equal keys, in words W.
// A thread has the word j of one sorted pair i, and returns unless the pair is the last of its run. Neighboring
// threads have neighboring words.
template <class W>
__global__ void __launch_bounds__(kThreads)
    assign_last(W* out, const SortedElement* sorted, const W* src, IndexedShape s) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= s.selected()) return;
  const int64_t row = e / s.inner, j = e % s.inner, o = row / s.k, i = row % s.k;
  const auto pair = load_vector<SortedElement>(sorted + i);
  if (pair.key == kNoTarget || (i + 1 < s.k && sorted[i + 1].key == pair.key)) return;
  const auto target = static_cast<int64_t>(pair.key);
  const W word = load_vector<W>(src + (o * s.k + pair.index) * s.inner + j);
  store_vector(out + (o * s.n + target) * s.inner + j, word);
}

// out[o, t, j] = combine(... combine(out[o, t, j], src[o, p0, j]) ..., src[o, pm, j]) for each run of pairs with the
// key t and the indices p0 < ... < pm. A thread has the element j of one sorted pair i, and returns unless the pair
// is the first of its run. Neighboring threads have neighboring elements.
template <class T, class F>
__global__ void __launch_bounds__(kThreads, 4)
    combine_runs(T* out, const SortedElement* sorted, const T* src, IndexedShape s, F combine) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= s.selected()) return;
  const int64_t row = e / s.inner, j = e % s.inner, o = row / s.k;
  int64_t i = row % s.k;
  const uint64_t key = sorted[i].key;
  if (key == kNoTarget || (i > 0 && sorted[i - 1].key == key)) return;
  T* const target = out + (o * s.n + static_cast<int64_t>(key)) * s.inner + j;
  const T* const source = src + o * s.k * s.inner + j;
  T value = *target;
  // A long run waits for memory, so the elements of kLoadBatch pairs are loaded at once.
  for (; i + kLoadBatch <= s.k && sorted[i + kLoadBatch - 1].key == key; i += kLoadBatch) {
    T sources[kLoadBatch];
#pragma unroll
    for (int p = 0; p < kLoadBatch; ++p) sources[p] = source[sorted[i + p].index * s.inner];
#pragma unroll
    for (int p = 0; p < kLoadBatch; ++p) value = combine(value, sources[p]);
  }
  for (; i < s.k && sorted[i].key == key; ++i) value = combine(value, source[sorted[i].index * s.inner]);
  *target = value;
}

// A product or an extremum, with the CPU's order of arguments: it decides which of two equal zeros remains.
struct CombineByMode {
  raw::WriteMode mode;
  template <class T> __device__ __forceinline__ T operator()(T old, T written) const {
    if (mode == raw::WriteMode::kMultiply) return functors::Mul()(old, written);
    return mode == raw::WriteMode::kMax ? functors::Maximum()(written, old)
                                        : functors::Minimum()(written, old);
  }
};

// out[i] += stride * index[i], where a negative index counts from the end. A thread has one index.
__global__ void __launch_bounds__(kThreads) add_flat_index(int64_t* out, const int64_t* index, int64_t count,
                                                           int64_t n, int64_t stride, ValueReports reports) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t selected = index[i];
  if (-n <= selected && selected < n) {
    out[i] += (selected < 0 ? selected + n : selected) * stride;
  } else {
    report(reports, i, static_cast<uint64_t>(selected));
    out[i] = kInvalidFlatIndex;
  }
}

// out[i, c] = c == index[i]. A thread has one element of out.
__global__ void __launch_bounds__(kThreads)
    write_one_hot(void* out, DType dtype, const int64_t* index, int64_t count, int64_t classes,
                  ValueReports reports) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, i = e / classes, c = e % classes;
  if (i >= count) return;
  const int64_t selected = index[i];
  if (c == 0 && !is_valid(selected, classes)) report(reports, i, static_cast<uint64_t>(selected));
  store_as(out, dtype, e, static_cast<int32_t>(c == selected));
}

// Reports each invalid index. A thread has one index.
__global__ void __launch_bounds__(kThreads)
    report_invalid(const int64_t* index, int64_t count, int64_t n, ValueReports reports) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count && !is_valid(index[i], n)) report(reports, i, static_cast<uint64_t>(index[i]));
}

// Returns the size of the largest word of which a row of `bytes` bytes consists and to which the arrays are aligned.
int64_t word_bytes_for(int64_t bytes, std::initializer_list<const void*> arrays) {
  int64_t word = 16;
  const auto is_misaligned = [&](const void* p) { return !is_aligned(p, static_cast<size_t>(word)); };
  while (bytes % word != 0 || std::any_of(arrays.begin(), arrays.end(), is_misaligned)) word /= 2;
  return word;
}

// The index_select for rows of s.inner words of `word_bytes` bytes, or with `per_element` the gather.
template <bool per_element>
void read(const char* op, const View& out, const void* x, const int64_t* index, const IndexedShape& s,
          int64_t word_bytes, const ValueReports& reports, cudaStream_t stream) {
  if (s.selected() == 0) return;
  with_word(word_bytes, [&]<class W>(W invalid) {
    std::memset(&invalid, is_floating(out.dtype) ? 0xff : 0, sizeof invalid);  // 0xff...: NaN in all floats
    launch(op, read_indexed<W, per_element>, {blocks_for(s.selected(), kThreads), kThreads}, stream,
           static_cast<W*>(out.data), static_cast<const W*>(x), index, s, invalid, reports);
  });
}

// Writes the rows of src [outer, k, inner] to the rows of out [outer, n, inner] that the sorted pairs name.
void write(const char* op, const View& out, const SortedElement* sorted, const void* src, IndexedShape s,
           raw::WriteMode mode, cudaStream_t stream) {
  if (mode == raw::WriteMode::kAssign) {
    const int64_t row = s.inner * size_of(out.dtype), word_bytes = word_bytes_for(row, {out.data, src});
    s.inner = row / word_bytes;
    return with_word(word_bytes, [&]<class W>(W) {
      launch(op, assign_last<W>, {blocks_for(s.selected(), kThreads), kThreads}, stream,
             static_cast<W*>(out.data), sorted, static_cast<const W*>(src), s);
    });
  }
  with_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    const auto run = [&](auto combine) {
      launch(op, combine_runs<T, decltype(combine)>, {blocks_for(s.selected(), kThreads), kThreads}, stream,
             out.as<T>(), sorted, static_cast<const T*>(src), s, combine);
    };
    if constexpr (std::is_arithmetic_v<T>) {  // 16-bit floats are combined in f32
      if (mode == raw::WriteMode::kAdd) return run(functors::Add());
      if constexpr (!std::is_same_v<T, bool>) run(CombineByMode{mode});
    }
  });
}

}  // namespace

void index_select(const char* op, const View& out, const void* x, const int64_t* index, const IndexedShape& s,
                  const ValueReports& reports, cudaStream_t stream) {
  const int64_t row = s.inner * size_of(out.dtype), word_bytes = word_bytes_for(row, {out.data, x});
  read<false>(op, out, x, index, {s.outer, s.n, row / word_bytes, s.k}, word_bytes, reports, stream);
}

void gather(const char* op, const View& out, const void* x, const int64_t* index, const IndexedShape& s,
            const ValueReports& reports, cudaStream_t stream) {
  read<true>(op, out, x, index, s, size_of(out.dtype), reports, stream);
}

int64_t write_workspace(int64_t count) { return merge_sort_workspace({1, count, count}); }

void index_put(const char* op, const View& out, const int64_t* index, const void* src, const IndexedShape& s,
               int64_t skip, raw::WriteMode mode, void* workspace, const ValueReports& reports,
               cudaStream_t stream) {
  if (s.selected() == 0) return;
  const TargetOf target{index, {1, s.n, 1, s.k}, skip, reports};
  write(op, out, merge_sort(op, {1, s.k, s.k}, target, workspace, stream), src, s, mode, stream);
}

void scatter(const char* op, const View& out, const int64_t* index, const void* src, const IndexedShape& s,
             raw::WriteMode mode, void* workspace, const ValueReports& reports, cudaStream_t stream) {
  const int64_t count = s.selected();
  if (count == 0) return;
  // The targets are elements of the whole of out. Of one target, positions are in the order of i.
  const SortedElement* const sorted =
      merge_sort(op, {1, count, count}, TargetOf{index, s, -1, reports}, workspace, stream);
  write(op, out, sorted, src, {1, s.outer * s.n * s.inner, 1, count}, mode, stream);
}

void flat_index(const char* op, int64_t* out, const int64_t* index, int64_t count, int64_t n, int64_t stride,
                const ValueReports& reports, cudaStream_t stream) {
  if (count > 0)
    launch(op, add_flat_index, {blocks_for(count, kThreads), kThreads}, stream, out, index, count, n, stride,
           reports);
}

void one_hot(const char* op, const View& out, const int64_t* index, int64_t count, int64_t classes,
             const ValueReports& reports, cudaStream_t stream) {
  if (count > 0)
    launch(op, write_one_hot, {blocks_for(count * classes, kThreads), kThreads}, stream, out.data, out.dtype,
           index, count, classes, reports);
}

void check_indices(const char* op, const int64_t* index, int64_t count, int64_t n,
                   const ValueReports& reports, cudaStream_t stream) {
  if (count > 0)
    launch(op, report_invalid, {blocks_for(count, kThreads), kThreads}, stream, index, count, n, reports);
}

}  // namespace gradus::cuda
