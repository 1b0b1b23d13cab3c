// CUDA kernels of tril and triu, which move bytes of any dtype (0 has all bits 0 in each), and of the indices
// of repeat_interleave: prefix sums of the counts (row_scan.h), then a binary search for each element of the
// result.
#include "gradus/tensor/cuda/kernels/arrange.h"

#include <algorithm>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/cuda/kernels/row_scan.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;

// out[.., r, c] = x[.., r, c] on and below the diagonal (`upper`: on and above), else 0, for `count` elements of
// matrices [rows, cols]. A thread has `vector` neighboring elements.
template <class W, int vector>
__global__ void __launch_bounds__(kThreads) keep_triangle(W* out, const W* x, int64_t count, int64_t rows,
                                                          int64_t cols, int64_t diagonal, bool upper) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * vector;
  if (at >= count) return;
  auto v = load_first<vector>(x + at, count - at);
  int64_t r = at / cols % rows, c = at % cols;
#pragma unroll
  for (int k = 0; k < vector; ++k) {
    if (!(upper ? c - r >= diagonal : c - r <= diagonal)) v.v[k] = W(0);
    if (++c == cols) c = 0, r = r + 1 == rows ? 0 : r + 1;
  }
  store_first(out + at, v, count - at);
}

// out[e] = the first i with e < sums[i], for sums[i] = counts[0] + ... + counts[i]. A thread has element e of
// out, and checks counts[e]. If no count is negative, the first sum beyond 64 bits is negative.
__global__ void __launch_bounds__(kThreads)
    repeat_indices(int64_t* out, int64_t size, const int64_t* counts, const uint64_t* sums, int64_t n,
                   ValueReports reports) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e < n && counts[e] < 0)
    report(reports, 2 * e, static_cast<uint64_t>(counts[e]));
  else if (e < n && static_cast<int64_t>(sums[e]) < 0)
    report(reports, 2 * e + 1, sums[e]);
  if (e == n) {
    const uint64_t total = n > 0 ? sums[n - 1] : 0;
    if (total != static_cast<uint64_t>(size)) report(reports, 2 * n, total);
  }
  if (e >= size) return;
  int64_t first = 0, last = std::max<int64_t>(n - 1, 0);
  while (first < last) {
    const int64_t middle = (first + last) / 2;
    if (sums[middle] > static_cast<uint64_t>(e))
      last = middle;
    else
      first = middle + 1;
  }
  out[e] = first;
}

struct CountElements {
  uint64_t* sums;
  const int64_t* counts;
  __device__ __forceinline__ uint64_t load(int64_t at, int64_t) const {
    return static_cast<uint64_t>(counts[at]);
  }
  __device__ __forceinline__ void store(int64_t at, uint64_t sum) const { sums[at] = sum; }
};

}  // namespace

void triangle(const char* op, void* out, const void* x, int64_t bytes, int64_t count, int64_t rows,
              int64_t cols, int64_t diagonal, bool upper, cudaStream_t stream) {
  with_unsigned(bytes, [&]<class W>(W) {
    const auto run = [&]<int vector>() {
      launch(op, keep_triangle<W, vector>, {blocks_for(count, kThreads * vector), kThreads}, stream,
             static_cast<W*>(out), static_cast<const W*>(x), count, rows, cols, diagonal, upper);
    };
    if (is_aligned(out, 16) && is_aligned(x, 16)) return run.template operator()<kVectorSize<W>>();
    run.template operator()<1>();
  });
}

int64_t repeat_workspace(int64_t n) {
  return n * int64_t{sizeof(uint64_t)} + scan_rows_workspace({1, n, 1}, sizeof(uint64_t));
}

void repeat(const char* op, int64_t* out, int64_t size, const int64_t* counts, int64_t n, void* workspace,
            const ValueReports& reports, cudaStream_t stream) {
  auto* const sums = static_cast<uint64_t*>(workspace);
  scan_rows(op, {1, n, 1}, PrefixSum<uint64_t>(), CountElements{sums, counts}, sums + n, stream);
  launch(op, repeat_indices, {blocks_for(std::max(size, n + 1), kThreads), kThreads}, stream, out, size,
         counts, sums, n, reports);
}

}  // namespace gradus::cuda
