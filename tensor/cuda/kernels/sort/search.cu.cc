// CUDA kernels of searchsorted and histc, by the formulas that the CPU has too (tensor/ops/formulas/sort.h).
// A histogram counts integers, so atomicAdd gives the same counts in any order of threads.
#include "gradus/tensor/cuda/kernels/sort/search.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/ops/formulas/sort.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kElementsPerThread = 8;  // of x; more if the grid reaches kMaxHistogramBlocks
constexpr int64_t kMaxHistogramBlocks = 1024;
constexpr int64_t kSharedBins = 4096;  // histograms of at most as many bins are counted in shared memory

using Count = unsigned long long;  // the 64-bit type of CUDA's atomics

// out[r, i] = number of k < n with sorted[r, k] < values[r, i] (`right`: <=), or n if values[r, i] is NaN,
// for rows r of sorted[rows, n] and values[rows, m]; count = rows * m. One thread per value, binary search.
template <class T>
__global__ void __launch_bounds__(kThreads) search_rows(int64_t* out, const T* sorted, const T* values,
                                                        int64_t count, int64_t n, int64_t m, bool right) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const T* const row = sorted + i / m * n;
  const auto value = widen(values[i]);
  const auto as_value = [](T x) { return widen(x); };
  out[i] = value != value ? n
           : right        ? formulas::bound_index<true>(value, row, n, as_value)
                          : formulas::bound_index<false>(value, row, n, as_value);
}

// HistogramRange with values of type T.
template <class T> struct Bounds {
  T given_low, given_high;
  const T *x_low, *x_high;

  __device__ __forceinline__ T low() const { return x_low ? *x_low : given_low; }
  __device__ __forceinline__ T high() const { return x_high ? *x_high : given_high; }
};

// Shared memory of count_bins.
struct BlockCounts {
  uint32_t v[kSharedBins];
};

// counts[i] += the number of elements of x[n] in bin i, which the caller has set to 0. Grid-stride loop over x.
// If bins <= kSharedBins, a block counts in shared memory first. If the range is not finite, the counts are
// unspecified, and store_counts() does not use them.
template <class T>
__global__ void __launch_bounds__(kThreads)
    count_bins(Count* counts, const T* x, int64_t n, int64_t bins, Bounds<T> bounds) {
  uint32_t* const block_counts = shared_memory<BlockCounts>().v;
  const auto histogram = formulas::HistogramBins<T>::of(bounds.low(), bounds.high(), bins);
  const bool is_shared = bins <= kSharedBins;
  if (is_shared)
    for (int bin = threadIdx.x; bin < bins; bin += kThreads) block_counts[bin] = 0;
  __syncthreads();
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first; i < n; i += int64_t{gridDim.x} * kThreads) {
    const T value = x[i];
    if (!histogram.contains(value)) continue;
    const int64_t bin = histogram.bin_of(value);
    if (is_shared)
      atomicAdd(block_counts + bin, 1u);
    else
      atomicAdd(counts + bin, Count{1});
  }
  __syncthreads();
  if (is_shared)
    for (int bin = threadIdx.x; bin < bins; bin += kThreads)
      if (block_counts[bin] > 0) atomicAdd(counts + bin, Count{block_counts[bin]});
}

// out[i] = counts[i], or NaN for a range that is not finite, which is reported. One thread per bin.
template <class T>
__global__ void __launch_bounds__(kThreads)
    store_counts(T* out, const Count* counts, int64_t bins, Bounds<T> bounds, ValueReports reports) {
  constexpr T kMax = std::numeric_limits<T>::max();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= bins) return;
  const T low = bounds.low(), bound = m::abs(low) <= kMax ? bounds.high() : low;
  const bool is_finite = m::abs(bound) <= kMax;
  if (i == 0 && !is_finite) report(reports, 0, std::bit_cast<uint64_t>(static_cast<double>(bound)));
  out[i] = is_finite ? static_cast<T>(counts[i]) : std::numeric_limits<T>::quiet_NaN();
}

}  // namespace

void searchsorted(const char* op, int64_t* out, const View& sorted, const View& values, int64_t rows,
                  int64_t n, int64_t m, bool right, cudaStream_t stream) {
  const int64_t count = rows * m;
  if (count == 0) return;
  with_type(values.dtype, [&](auto type) {
    using T = decltype(type);
    launch(op, search_rows<T>, {blocks_for(count, kThreads), kThreads}, stream, out, sorted.as<const T>(),
           values.as<const T>(), count, n, m, right);
  });
}

void histc(const char* op, const View& out, int64_t* counts, const View& x, int64_t n, int64_t bins,
           const HistogramRange& range, const ValueReports& reports, cudaStream_t stream) {
  auto* const bin_counts = reinterpret_cast<Count*>(counts);
  const auto run = [&](auto type) {
    using T = decltype(type);
    const Bounds<T> bounds{static_cast<T>(range.low), static_cast<T>(range.high),
                           static_cast<const T*>(range.x_low), static_cast<const T*>(range.x_high)};
    const int64_t blocks = std::min(blocks_for(n, kThreads * kElementsPerThread), kMaxHistogramBlocks);
    if (n > 0)
      launch(op, count_bins<T>, {blocks, kThreads, sizeof(BlockCounts)}, stream, bin_counts, x.as<const T>(),
             n, bins, bounds);
    launch(op, store_counts<T>, {blocks_for(bins, kThreads), kThreads}, stream, out.as<T>(), bin_counts, bins,
           bounds, reports);
  };
  x.dtype == DType::kF64 ? run(double()) : run(float());
}

}  // namespace gradus::cuda
