// Kernels over the gradients of many tensors at once: sums, p-norms, hashes, clipping, and the loss scaling of mixed
// precision. A launch gets a table of tensors (tensor_table.h), whose elements are divided into chunks of
// kChunk; block b computes chunk b. A reduction writes one partial result per chunk, which a second kernel of
// one block merges in a fixed order, so results repeat bit for bit. 16-bit floats are computed in f32, norms
// in f64. Tensors are dense; nothing waits for the host.
#include "gradus/tensor/cuda/kernels/gradients.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "gradus/tensor/cuda/kernels/chunk_loop.h"
#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/ops/formulas/gradients.h"
#include "gradus/tensor/ops/formulas/hash.h"
#include "gradus/tensor/ops/formulas/loss_scale.h"

namespace gradus::cuda {
namespace {

using Table = TensorTable<1>;

// Calls f with each vector of the calling thread's share of the block's chunk; if `stores`, writes it back.
template <class P, bool stores, class F>
__device__ __forceinline__ void over_vectors(const Table& table, F&& f) {
  const Chunk chunk = table.chunk_of(blockIdx.x);
  P* const x = table.at<P>(0, chunk);
  for_each_chunk_vector<kVectorSize<P>>(chunk, is_aligned(x, 16), [&]<int n>(int i) {
    Vector<P, n> v = load<n>(x + i);
    f(v);
    if constexpr (stores) store(x + i, v);
  });
}

// sum[i] += term[i] for each tensor. A block has one chunk, a thread every kChunkThreads-th vector.
template <class P> __global__ void __launch_bounds__(kChunkThreads) add_to_sums(TensorTable<2> table) {
  const Chunk chunk = table.chunk_of(blockIdx.x);
  P* const sum = table.at<P>(0, chunk);
  const P* const term = table.at<P>(1, chunk);
  for_each_chunk_vector<kVectorSize<P>>(chunk, is_aligned(sum, 16) && is_aligned(term, 16),
                                        [&]<int n>(int i) {
                                          Vector<P, n> a = load<n>(sum + i);
                                          const Vector<P, n> b = load<n>(term + i);
#pragma unroll
                                          for (int e = 0; e < n; ++e)
                                            a.v[e] = convert<P>(widen(a.v[e]) + widen(b.v[e]));
                                          store(sum + i, a);
                                        });
}

// Terms of power sums: |x|, x^2 and |x|^p.
struct Magnitude {
  __device__ double operator()(double x) const { return m::abs(x); }
};
struct Square {
  __device__ double operator()(double x) const { return x * x; }
};
struct AnyPower {
  double p;
  __device__ double operator()(double x) const { return m::pow(m::abs(x), p); }
};
struct AddTerms {
  using Wide = double;
  bool largest;  // the maximum instead of the sum, for an infinite p
  __device__ double merge(double a, double b) const { return largest ? raw::max_or_nan(a, b) : a + b; }
};
AddTerms terms_of(double p) { return {std::isinf(p)}; }

// sums[chunk] = sum, or maximum, of term(x[i]) over the elements of a chunk. A block has one chunk.
template <class P, class Term>
__global__ void __launch_bounds__(kChunkThreads)
    sum_powers_of_chunks(AddTerms add, Term term, double* sums, Table table) {
  double local = 0;
  over_vectors<P, false>(table, [&](const auto& v) {
#pragma unroll
    for (const P x : v.v) local = add.merge(local, term(static_cast<double>(widen(x))));
  });
  local = merge_block<kChunkThreads>(add, local);
  if (threadIdx.x == 0) sums[blockIdx.x] = local;
}

// norm = (sum of sums[n])^(1/p), or their maximum for an infinite p. One block.
__global__ void __launch_bounds__(kChunkThreads)
    take_norm(AddTerms add, void* norm, bool is_f64, const double* sums, int64_t n, double p) {
  double local = 0;
  for (int64_t i = threadIdx.x; i < n; i += kChunkThreads) local = add.merge(local, sums[i]);
  local = raw::p_norm_of_sum(merge_block<kChunkThreads>(add, local), p);
  if (threadIdx.x == 0)
    is_f64 ? *static_cast<double*>(norm) = local : *static_cast<float*>(norm) = static_cast<float>(local);
}

struct AddHashes {
  using Wide = uint64_t;
  __device__ uint64_t merge(uint64_t a, uint64_t b) const { return a + b; }
};

// Returns the word of the `count` bytes at p, at most 8, and of zeros.
__device__ __forceinline__ uint64_t word_at(const uint8_t* p, int count) {
  if (count >= 8 && is_aligned(p, 8)) return load_vector<Vector<uint64_t, 1>>(p).v[0];
  uint64_t word = 0;
  for (int k = 0; k < std::min(count, 8); ++k) word |= uint64_t{p[k]} << (8 * k);
  return word;
}

// *sum += sum of hash_of_word(word i, i) over the words of a chunk of bytes. A block has one chunk. Integers are
// added, so the order of the blocks does not count.
__global__ void __launch_bounds__(kChunkThreads) add_hashes_of_chunks(TensorTable<2> table) {
  const Chunk chunk = table.chunk_of(blockIdx.x);
  const uint8_t* const bytes = table.at<uint8_t>(0, chunk);
  uint64_t sum = 0;
  for (int at = static_cast<int>(threadIdx.x) * 8; at < chunk.count; at += kChunkThreads * 8)
    sum +=
        raw::hash_of_word(word_at(bytes + at, chunk.count - at), static_cast<uint64_t>(chunk.from + at) / 8);
  sum = merge_block<kChunkThreads>(AddHashes(), sum);
  // unsigned long long: the 64-bit type of CUDA's atomics
  if (threadIdx.x == 0) atomicAdd(static_cast<unsigned long long*>(table.data[1][chunk.tensor]), sum);
}

// x[i] *= max_norm / (norm + 1e-6) for each tensor, if that is less than 1. A block has one chunk.
template <class P>
__global__ void __launch_bounds__(kChunkThreads)
    clip_to_norm(const void* norm, bool is_f64, double max_norm, Table table) {
  const double size = is_f64 ? *static_cast<const double*>(norm) : *static_cast<const float*>(norm);
  const double factor = raw::clip_factor(size, max_norm);
  if (!raw::needs_clipping(factor)) return;
  over_vectors<P, true>(table, [&](auto& v) {
#pragma unroll
    for (P& x : v.v) x = convert<P>(widen(x) * static_cast<compute_t<P>>(factor));
  });
}

// x[i] = min(max(x[i], low), high) for each tensor. A block has one chunk.
template <class P>
__global__ void __launch_bounds__(kChunkThreads)
    clip_to_value(compute_t<P> low, compute_t<P> high, Table table) {
  over_vectors<P, true>(table, [&](auto& v) {
#pragma unroll
    for (P& x : v.v) x = convert<P>(raw::clamped(widen(x), low, high));
  });
}

struct AnyOf {
  using Wide = int32_t;
  __device__ int32_t merge(int32_t a, int32_t b) const { return a | b; }
};

// x[i] *= 1 / *scale, or `by` if `scale` is null; bad[chunk] = a result is not finite. A block has a chunk.
template <class P>
__global__ void __launch_bounds__(kChunkThreads)
    unscale_chunks(int32_t* bad, double by, const double* scale, Table table) {
  const auto factor = static_cast<compute_t<P>>(scale ? 1 / *scale : by);
  int32_t local = 0;
  over_vectors<P, true>(table, [&](auto& v) {
#pragma unroll
    for (P& x : v.v) {
      const compute_t<P> scaled = widen(x) * factor;
      local |= !raw::is_finite(scaled);
      x = convert<P>(scaled);
    }
  });
  local = merge_block<kChunkThreads>(AnyOf{}, local);
  if (threadIdx.x == 0) bad[blockIdx.x] = local;
}

// *found = whether one of bad[n] is set. One block.
__global__ void __launch_bounds__(kChunkThreads) find_bad(float* found, const int32_t* bad, int64_t n) {
  int32_t local = 0;
  for (int64_t i = threadIdx.x; i < n; i += kChunkThreads) local |= bad[i];
  local = merge_block<kChunkThreads>(AnyOf{}, local);
  if (threadIdx.x == 0) *found = static_cast<float>(local);
}

// *now = the loss scale after a step; *found != 0: its gradients were infinite or NaN. `before` is the state
// at the backward, `latest` that after the previous step of this backward, or null. A scale below the minimum
// is reported to the host (value_reports.h), with the number of skipped steps as position. One thread.
__global__ void __launch_bounds__(kWarp)
    move_loss_scale(raw::LossScale* now, const raw::LossScale* before, const raw::LossScale* latest,
                    const float* found, raw::LossScaleOptions options, ValueReports reports) {
  raw::LossScale last = latest ? *latest : *before;
  if (!latest) last.found_inf = 0;
  const raw::LossScale next = raw::next_loss_scale(*before, last, *found != 0, options);
  *now = next;
  if (next.scale < raw::kMinLossScale)
    report(reports, static_cast<int64_t>(next.skipped), std::bit_cast<uint64_t>(next.scale));
}

template <class Wide> constexpr int64_t kSharedOf = sizeof(MergedWarps<Wide, kChunkThreads>);

}  // namespace

void add_all(const char* op, DType dtype, std::span<const ArraysOfTensor<2>> tensors, cudaStream_t stream) {
  for_each_table<2>(tensors, [&](const TensorTable<2>& table, int64_t blocks) {
    with_float(dtype, [&]<class P>(P) {
      launch(op, add_to_sums<P>, {blocks, kChunkThreads}, stream, table);
    });
  });
}

int64_t chunks_of(Gradients tensors) {
  int64_t chunks = 0;
  for (const ArraysOfTensor<1>& x : tensors) chunks += blocks_for(x.n, kChunk);
  return chunks;
}

void power_sums(const char* op, double* sums, DType dtype, Gradients tensors, double p, cudaStream_t stream) {
  for_each_table<1>(tensors, [&](const Table& table, int64_t blocks) {
    with_float(dtype, [&]<class P>(P) {
      const auto start = [&]<class Term>(Term term) {
        launch(op, sum_powers_of_chunks<P, Term>, {blocks, kChunkThreads, kSharedOf<double>}, stream,
               terms_of(p), term, sums, table);
      };
      p == 2 ? start(Square{}) : p == 1 || std::isinf(p) ? start(Magnitude{}) : start(AnyPower{p});
    });
    sums += blocks;
  });
}

void norm_of_sums(const char* op, const View& norm, const double* sums, int64_t n, double p,
                  cudaStream_t stream) {
  launch(op, take_norm, {1, kChunkThreads, kSharedOf<double>}, stream, terms_of(p), norm.data,
         norm.dtype == DType::kF64, sums, n, p);
}

void add_hashes(const char* op, std::span<const ArraysOfTensor<2>> tensors, cudaStream_t stream) {
  for_each_table<2>(tensors, [&](const TensorTable<2>& table, int64_t blocks) {
    launch(op, add_hashes_of_chunks, {blocks, kChunkThreads, kSharedOf<uint64_t>}, stream, table);
  });
}

void clip_by_norm(const char* op, const View& norm, DType dtype, Gradients tensors, double max_norm,
                  cudaStream_t stream) {
  for_each_table<1>(tensors, [&](const Table& table, int64_t blocks) {
    with_float(dtype, [&]<class P>(P) {
      launch(op, clip_to_norm<P>, {blocks, kChunkThreads}, stream, norm.data, norm.dtype == DType::kF64,
             max_norm, table);
    });
  });
}

void clip_by_value(const char* op, DType dtype, Gradients tensors, double limit, cudaStream_t stream) {
  for_each_table<1>(tensors, [&](const Table& table, int64_t blocks) {
    with_float(dtype, [&]<class P>(P) {
      launch(op, clip_to_value<P>, {blocks, kChunkThreads}, stream, -limit, limit, table);
    });
  });
}

void unscale(const char* op, int32_t* bad, DType dtype, Gradients tensors, double factor, const double* scale,
             cudaStream_t stream) {
  for_each_table<1>(tensors, [&](const Table& table, int64_t blocks) {
    with_float(dtype, [&]<class P>(P) {
      launch(op, unscale_chunks<P>, {blocks, kChunkThreads, kSharedOf<int32_t>}, stream, bad, factor, scale,
             table);
    });
    bad += blocks;
  });
}

void any_nonfinite(const char* op, float* found, const int32_t* bad, int64_t n, cudaStream_t stream) {
  launch(op, find_bad, {1, kChunkThreads, kSharedOf<int32_t>}, stream, found, bad, n);
}

void move_scale(const char* op, raw::LossScale* now, const raw::LossScale* before,
                const raw::LossScale* latest, const float* found, const raw::LossScaleOptions& options,
                const ValueReports& reports, cudaStream_t stream) {
  launch(op, move_loss_scale, {1, 1}, stream, now, before, latest, found, options, reports);
}

}  // namespace gradus::cuda
