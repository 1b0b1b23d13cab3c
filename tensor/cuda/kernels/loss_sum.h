// Sums of point-wise losses (tensor/ops/losses/loss_functors.h), without the losses themselves in memory.
// Each block takes a chunk. One chunk is one launch; the sums of several are added by a second one. The first
// can also write the gradient in x of the sum.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradus/tensor/cuda/kernels/chunk_loop.h"
#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/ops/losses/loss_functors.h"

namespace gradus::cuda {
namespace loss_sum_detail {

inline constexpr int64_t kSharedOfSums = sizeof(MergedWarps<double, kChunkThreads>);

// chunks[b] = sum over i of chunk b of loss(x[i], targets[i]), and slopes[i] = gradient(1, x[i], targets[i]).
// A block has one chunk. Null `targets`: `target` is that of all elements. Null `slopes`: none. Null
// `chunks`: there is one chunk, and *out is its sum times gradient.factor.
template <class F, class G, class T>
__global__ void __launch_bounds__(kChunkThreads)
    sum_chunk_of_losses(F loss, G gradient, const T* x, const T* targets, double target, int64_t n, T* out,
                        T* slopes, double* chunks) {
  using A = compute_t<T>;
  const int64_t from = int64_t{blockIdx.x} * kChunk;
  const Chunk chunk{0, static_cast<int>(std::min<int64_t>(n - from, kChunk)), from};
  x += from;
  if (targets) targets += from;
  if (slopes) slopes += from;
  const bool in_vectors = is_aligned(x, 16) && is_aligned(targets, 16) && is_aligned(slopes, 16);
  const auto same = static_cast<A>(target);
  double local = 0;
  for_each_part<kVectorSize<T>>(chunk, in_vectors, [&]<int m>(int i) {
    const Vector<T, m> v = load<m>(x + i);
    Vector<T, m> t{}, slope{};
    if (targets) t = load<m>(targets + i);
#pragma unroll
    for (int e = 0; e < m; ++e) {
      const A element = widen(v.v[e]), wanted = targets ? widen(t.v[e]) : same;
      local += static_cast<double>(loss(element, wanted));
      if (slopes) slope.v[e] = convert<T>(gradient(A(1), element, wanted));
    }
    if (slopes) store(slopes + i, slope);
  });
  local = merge_block<kChunkThreads>(Sum<double>{}, local);
  if (threadIdx.x != 0) return;
  if (chunks)
    chunks[blockIdx.x] = local;
  else
    *out = convert<T>(local * gradient.factor);
}

// *out = factor * sum of chunks[n]. One block.
template <class T>
__global__ void __launch_bounds__(kChunkThreads)
    add_sums_of_losses(T* out, const double* chunks, int64_t n, double factor) {
  double local = 0;
  for (int64_t i = threadIdx.x; i < n; i += kChunkThreads) local += chunks[i];
  local = merge_block<kChunkThreads>(Sum<double>{}, local);
  if (threadIdx.x == 0) *out = convert<T>(local * factor);
}

}  // namespace loss_sum_detail

// Returns the bytes of workspace that sum_losses() needs, aligned to 8.
inline int64_t loss_sum_workspace(int64_t n) {
  const int64_t chunks = blocks_for(n, kChunk);
  return chunks > 1 ? chunks * static_cast<int64_t>(sizeof(double)) : 0;
}

// *out = gradient.factor times the sum of loss(x[i], targets[i]) over n elements, n > 0. Where `targets` is
// null, `target` is that of all elements. Unless `slopes` is null, slopes[i] = gradient(1, x[i], targets[i]).
template <class T, class F, class G>
void sum_losses(const char* op, const F& loss, const functors::ScaledGradient<G>& gradient, T* out, T* slopes,
                const T* x, const T* targets, double target, int64_t n, void* workspace,
                cudaStream_t stream) {
  using namespace loss_sum_detail;  // NOLINT
  const int64_t chunks = blocks_for(n, kChunk);
  auto* const sums = chunks > 1 ? static_cast<double*>(workspace) : nullptr;
  launch(op, sum_chunk_of_losses<F, functors::ScaledGradient<G>, T>, {chunks, kChunkThreads, kSharedOfSums},
         stream, loss, gradient, x, targets, target, n, out, slopes, sums);
  if (sums)
    launch(op, add_sums_of_losses<T>, {1, kChunkThreads, kSharedOfSums}, stream, out, sums, chunks,
           gradient.factor);
}

}  // namespace gradus::cuda
