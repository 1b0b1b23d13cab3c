// CUDA kernels of nonzero, masked_select and masked_scatter: scan and compact. One launch counts the true
// elements of each chunk of a mask, prefix sums of the counts follow (row_scan.h), and a last launch visits
// the elements again, each true one with its rank, the number of true elements before it. A warp has a chunk,
// in both launches.
#include "gradus/tensor/cuda/kernels/masks.h"

#include <algorithm>
#include <bit>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/cuda/kernels/row_scan.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int64_t kChunk = 1024;

int64_t chunks_of(int64_t n) { return blocks_for(n, kChunk); }

// Calls f(i, ballot) for the elements i = lane, lane + kWarp, ... of the calling warp's chunk; bit l of `ballot` is
// element i - lane + l of mask[n], false beyond n.
template <class F> __device__ __forceinline__ void for_each_in_chunk(const bool* mask, int64_t n, F&& f) {
  const int64_t chunk = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int64_t first = chunk * kChunk + threadIdx.x % kWarp;
#pragma unroll 4
  for (int e = 0; e < kChunk; e += kWarp) {
    const int64_t i = first + e;
    f(i, __ballot_sync(kAllLanes, i < n && mask[i]));
  }
}

// counts[c] = number of true elements of chunk c of mask[n].
__global__ void __launch_bounds__(kThreads) count_chunks(uint64_t* counts, const bool* mask, int64_t n) {
  const int64_t chunk = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  int count = 0;
  for_each_in_chunk(mask, n, [&](int64_t, uint32_t ballot) { count += std::popcount(ballot); });
  if (threadIdx.x % kWarp == 0 && chunk * kChunk < n) counts[chunk] = static_cast<uint64_t>(count);
}

// Calls visit(i, is_true, rank, total) for each i < `items` >= n, where is_true = mask[i], false beyond n;
// rank = number of true elements before i, given sums[c] = number of true elements of chunks 0 .. c; total =
// number of all true elements. A warp has a chunk of elements, neighboring lanes neighboring elements.
template <class Visit>
__global__ void __launch_bounds__(kThreads, 4)
    visit_mask(const bool* mask, int64_t n, int64_t items, const uint64_t* sums, Visit visit) {
  const int64_t chunks = (n + kChunk - 1) / kChunk,
                chunk = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const auto sum_before = [&](int64_t c) { return c > 0 ? static_cast<int64_t>(sums[c - 1]) : 0; };
  const int64_t total = sum_before(chunks);
  int64_t before = sum_before(std::min(chunk, chunks));
  const uint32_t earlier = (1u << threadIdx.x % kWarp) - 1;  // mask of the lanes below this one
  for_each_in_chunk(mask, n, [&](int64_t i, uint32_t ballot) {
    const bool is_true = ballot >> threadIdx.x % kWarp & 1;
    if (i < items) visit(i, is_true, before + std::popcount(ballot & earlier), total);
    before += std::popcount(ballot);
  });
}

struct WriteCoordinates {
  int64_t* out;
  MaskShape shape;
  __device__ __forceinline__ void operator()(int64_t i, bool is_true, int64_t rank, int64_t) const {
    if (!is_true) return;
#pragma unroll
    for (int d = kMaxDims - 1; d >= 0; --d) {
      if (d >= shape.dims) continue;
      const int64_t outer = i / shape.size[size_t(d)];
      out[rank * shape.dims + d] = i - outer * shape.size[size_t(d)];
      i = outer;
    }
  }
};

template <class W> struct Select {
  W* out;
  const W* x;
  int64_t size;
  ValueReports reports;
  __device__ __forceinline__ void operator()(int64_t i, bool is_true, int64_t rank, int64_t total) const {
    if (i == 0 && total > size) report(reports, 0, static_cast<uint64_t>(total));
    if (is_true && rank < size) out[rank] = x[i];
    if (total <= i && i < size) out[i] = W(0);
  }
};

template <class W> struct Scatter {
  W* out;
  const W *x, *src;
  int64_t count;
  ValueReports reports;
  __device__ __forceinline__ void operator()(int64_t i, bool is_true, int64_t rank, int64_t total) const {
    if (i == 0 && total > count) report(reports, 0, static_cast<uint64_t>(total));
    W v = W(0);
    if (is_true && count > 0) v = src[std::min(rank, count - 1)];
    if (!is_true && x) v = x[i];
    out[i] = v;
  }
};

// Queues `visit` for the elements i < max(n, items).
template <class Visit>
void run(const char* op, const bool* mask, int64_t n, int64_t items, const Visit& visit, void* workspace,
         cudaStream_t stream) {
  auto* const sums = static_cast<uint64_t*>(workspace);
  const int64_t chunks = chunks_of(n);
  items = std::max(items, n);
  if (n > 0) launch(op, count_chunks, {blocks_for(chunks, kWarps), kThreads}, stream, sums, mask, n);
  scan_rows(op, {1, chunks, 1}, PrefixSum<uint64_t>(), InPlaceElements<uint64_t>{sums}, sums + chunks,
            stream);
  if (items > 0)
    launch(op, visit_mask<Visit>, {blocks_for(chunks_of(items), kWarps), kThreads}, stream, mask, n, items,
           sums, visit);
}

}  // namespace

int64_t mask_workspace(int64_t n) {
  const int64_t chunks = chunks_of(n);
  return chunks * int64_t{sizeof(uint64_t)} + scan_rows_workspace({1, chunks, 1}, sizeof(uint64_t));
}

void nonzero(const char* op, int64_t* out, const bool* mask, int64_t n, const MaskShape& shape,
             void* workspace, cudaStream_t stream) {
  run(op, mask, n, n, WriteCoordinates{out, shape}, workspace, stream);
}

void masked_select(const char* op, void* out, int64_t size, const void* x, int64_t bytes, const bool* mask,
                   int64_t n, void* workspace, const ValueReports& reports, cudaStream_t stream) {
  with_unsigned(bytes, [&]<class W>(W) {
    run(op, mask, n, size, Select<W>{static_cast<W*>(out), static_cast<const W*>(x), size, reports},
        workspace, stream);
  });
}

void masked_scatter(const char* op, void* out, const void* x, int64_t bytes, const bool* mask, int64_t n,
                    const void* src, int64_t count, void* workspace, const ValueReports& reports,
                    cudaStream_t stream) {
  with_unsigned(bytes, [&]<class W>(W) {
    const Scatter<W> visit{static_cast<W*>(out), static_cast<const W*>(x), static_cast<const W*>(src), count,
                           reports};
    run(op, mask, n, n, visit, workspace, stream);
  });
}

}  // namespace gradus::cuda
