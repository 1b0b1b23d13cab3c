// Sums of point-wise losses (tensor/ops/losses/loss_functors.h), without the losses themselves in memory.
// Each block takes a chunk. One chunk is one launch; the sums of several are added by a second one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradus/tensor/cuda/kernels/chunk_loop.h"
#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/merge_block.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"

namespace gradus::cuda {
namespace loss_sum_detail {

inline constexpr int64_t kSharedOfSums = sizeof(MergedWarps<double, kChunkThreads>);

// A null `targets`: `target` is that of all elements. A null `chunks`: there is one chunk.
template <class F, class T>
__global__ void __launch_bounds__(kChunkThreads)
    sum_chunk_of_losses(F loss, const T* x, const T* targets, double target, int64_t n, double factor, T* out,
                        double* chunks) {
  constexpr int kVector = 16 / sizeof(T);
  const int64_t from = block_index() * kChunk;
  const Chunk chunk{0, static_cast<int>(std::min<int64_t>(n - from, kChunk)), from};
  x += from;
  if (targets) targets += from;
  const auto same = static_cast<compute_t<T>>(target);
  double mine = 0;
  for_each_part<kVector>(chunk, holds_vectors<kVector>(x) && holds_vectors<kVector>(targets),
                         [&]<int m>(int i) {
                           const Vector<T, m> v = load_part<m>(x + i);
                           Vector<T, m> t{};
                           if (targets) t = load_part<m>(targets + i);
#pragma unroll
                           for (int e = 0; e < m; ++e)
                             mine += static_cast<double>(loss(widen(v.v[e]), targets ? widen(t.v[e]) : same));
                         });
  mine = merge_block<kChunkThreads>(Sum<double>{}, mine);
  if (thread_index() != 0) return;
  if (chunks)
    chunks[block_index()] = mine;
  else
    *out = convert<T>(mine * factor);
}

// One block.
template <class T>
__global__ void __launch_bounds__(kChunkThreads)
    add_sums_of_losses(T* out, const double* chunks, int64_t n, double factor) {
  double mine = 0;
  for (int64_t i = thread_index(); i < n; i += kChunkThreads) mine += chunks[i];
  mine = merge_block<kChunkThreads>(Sum<double>{}, mine);
  if (thread_index() == 0) *out = convert<T>(mine * factor);
}

}  // namespace loss_sum_detail

// Returns the bytes of workspace that sum_losses() needs, aligned to 8.
inline int64_t loss_sum_workspace(int64_t n) {
  const int64_t chunks = blocks_for(n, kChunk);
  return chunks > 1 ? chunks * static_cast<int64_t>(sizeof(double)) : 0;
}

// *out = factor times the sum of loss(x[i], targets[i]) over n elements, n > 0. Where `targets` is null,
// `target` is that of all elements.
template <class T, class F>
void sum_losses(const char* op, const F& loss, T* out, const T* x, const T* targets, double target, int64_t n,
                double factor, void* workspace, cudaStream_t stream) {
  using namespace loss_sum_detail;  // NOLINT
  const int64_t chunks = blocks_for(n, kChunk);
  auto* const sums = chunks > 1 ? static_cast<double*>(workspace) : nullptr;
  launch(op, sum_chunk_of_losses<F, T>, {chunks, kChunkThreads, kSharedOfSums}, stream, loss, x, targets,
         target, n, factor, out, sums);
  if (sums)
    launch(op, add_sums_of_losses<T>, {1, kChunkThreads, kSharedOfSums}, stream, out, sums, chunks, factor);
}

}  // namespace gradus::cuda
