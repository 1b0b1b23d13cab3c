// *out = factor * sum_i loss(x[i], targets[i]) of an element-wise loss (tensor/ops/losses/loss_functors.h),
// without storing the losses, and optionally dx[i], the gradient of *out for x[i]. Each block sums a chunk of
// kChunk elements in f64. A second launch adds the sums of several chunks. Deterministic.
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

// chunks[b] = sum over i of chunk b of loss(x[i], targets[i]), and dx[i] = gradient(1, x[i], targets[i]).
// Block b has chunk b; thread t has every kChunkThreads-th vector of it. Null `targets`: `target` for all
// elements. Null `dx`: not written. Null `chunks`: *out = gradient.factor * the sum of the only chunk.
template <class F, class G, class T>
__global__ void __launch_bounds__(kChunkThreads)
    sum_chunk_of_losses(F loss, G gradient, const T* x, const T* targets, double target, int64_t n, T* out,
                        T* dx, double* chunks) {
  using A = compute_t<T>;
  const int64_t from = int64_t{blockIdx.x} * kChunk;
  const Chunk chunk{0, static_cast<int>(std::min<int64_t>(n - from, kChunk)), from};
  x += from;
  if (targets) targets += from;
  if (dx) dx += from;
  const bool in_vectors = is_aligned(x, 16) && is_aligned(targets, 16) && is_aligned(dx, 16);
  const auto scalar_target = static_cast<A>(target);
  double local = 0;
  for_each_chunk_vector<kVectorSize<T>>(chunk, in_vectors, [&]<int m>(int i) {
    const Vector<T, m> v = load<m>(x + i);
    Vector<T, m> t{}, gradients{};
    if (targets) t = load<m>(targets + i);
#pragma unroll
    for (int e = 0; e < m; ++e) {
      const A x_e = widen(v.v[e]), target_e = targets ? widen(t.v[e]) : scalar_target;
      local += static_cast<double>(loss(x_e, target_e));
      if (dx) gradients.v[e] = convert<T>(gradient(A(1), x_e, target_e));
    }
    if (dx) store(dx + i, gradients);
  });
  local = merge_block<kChunkThreads>(Sum<double>{}, local);
  if (threadIdx.x != 0) return;
  if (chunks)
    chunks[blockIdx.x] = local;
  else
    *out = convert<T>(local * gradient.factor);
}
// *out = factor * sum of chunks[0 .. n-1]. One block; thread t adds every kChunkThreads-th sum.
template <class T>
__global__ void __launch_bounds__(kChunkThreads)
    add_sums_of_losses(T* out, const double* chunks, int64_t n, double factor) {
  double local = 0;
  for (int64_t i = threadIdx.x; i < n; i += kChunkThreads) local += chunks[i];
  local = merge_block<kChunkThreads>(Sum<double>{}, local);
  if (threadIdx.x == 0) *out = convert<T>(local * factor);
}

}  // namespace loss_sum_detail

// Returns the bytes of workspace that sum_losses() needs for n elements, aligned to 8.
inline int64_t loss_sum_workspace(int64_t n) {
  const int64_t chunks = blocks_for(n, kChunk);
  return chunks > 1 ? chunks * static_cast<int64_t>(sizeof(double)) : 0;
}
// *out = gradient.factor * sum of loss(x[i], targets[i]) over n > 0 contiguous elements. A null `targets`
// means the number `target` for all. If `dx` is not null, dx[i] = gradient(1, x[i], targets[i]), which
// includes the factor. Pointers are device memory. Queues on `stream`; `op` is named in a CudaError.
template <class T, class F, class G>
void sum_losses(const char* op, const F& loss, const functors::ScaledGradient<G>& gradient, T* out, T* dx,
                const T* x, const T* targets, double target, int64_t n, void* workspace,
                cudaStream_t stream) {
  using namespace loss_sum_detail;  // NOLINT
  const int64_t chunks = blocks_for(n, kChunk);
  auto* const sums = chunks > 1 ? static_cast<double*>(workspace) : nullptr;
  launch(op, sum_chunk_of_losses<F, functors::ScaledGradient<G>, T>, {chunks, kChunkThreads, kSharedOfSums},
         stream, loss, gradient, x, targets, target, n, out, dx, sums);
  if (sums)
    launch(op, add_sums_of_losses<T>, {1, kChunkThreads, kSharedOfSums}, stream, out, sums, chunks,
           gradient.factor);
}

}  // namespace gradus::cuda
