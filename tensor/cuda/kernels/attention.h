// Launches of fused scaled dot-product attention and of its gradients, without the matrix of weights in memory. For
// each matrix of the batch, with q [L, E], k [S, E], v [S, V], mask [L, S]:
//   s = scale q k^T + mask, -infinity where masked          row_max[l] = max_j s[l, j]
//   w = exp(s - row_max) / total                            total[l] = sum_j exp(s[l, j] - row_max[l])
//   y = keep_scale (keep w) v                               keep: the dropout mask [L, S]
// T is float, double, bf16 or f16; 16-bit floats are computed in f32 and rounded once. Pointers are memory of the
// device of `stream`; `op` is named in a CudaError. Sums have a fixed order: results are deterministic.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/base/shape.h"
#include "gradus/tensor/cuda/kernels/compute_type.h"
#include "gradus/tensor/cuda/kernels/random.h"
#include "gradus/tensor/ops/formulas/random.h"

namespace gradus::cuda {

// The matrices of an operand or result: element (i, j) is at data[i * row + j * column], plus the batch offset. Strides
// of operands may be 0; those of results are of different elements, and their column is 1.
struct AttentionOperand {
  void* data;
  int64_t row, column, batch[kMaxDims - 2];
};
enum class AttentionMask : int32_t { kNone, kBool, kAdded };  // true keeps a score; of type T, added

// A call. L, S and V are at least 1; E and V at most raw::kMaxCudaAttentionHead. Has no padding.
struct Attention {
  int64_t L, S, E, V;
  int64_t matrices = 1, dims = 0,
          batch[kMaxDims - 2] = {};  // number of matrices, number and sizes of batch dims
  AttentionOperand q, k, v, mask, y;
  AttentionOperand dy, dq, dk, dv;   // for the gradients
  double scale = 1, keep_scale = 1;  // keep_scale = 1 / (1 - p) for dropout with probability p
  DeviceKey key = {};                // of the dropout mask, as for dropout_mask()
  draws::DropoutMask keep{1};        // keeps with probability 1 - p
  int32_t drops = 0, causal = 0;     // flags; causal masks key j for query l if j > l
  AttentionMask mask_type = AttentionMask::kNone;
};

// Numbers of each query's softmax: row_max and total, or one, row_max + log(total).
template <class C> struct SoftmaxStats {
  const C* data;      // [matrices, L, count]
  int64_t count = 2;  // or 1
};

// Computes a.y [matrices, L, V] and stats [matrices, L, 2] = (row_max, total). A query with all keys masked has total =
// NaN.
template <class T>
void attention(const char* op, compute_t<T>* stats, const Attention& a, cudaStream_t stream);
// Computes a.dq [matrices, L, E], a.dk [matrices, S, E] and a.dv [matrices, S, V] from a.dy and the results of
// attention(). Workspace: dy_y [matrices, L].
template <class T>
void attention_backward(const char* op, compute_t<T>* dy_y, SoftmaxStats<compute_t<T>> stats,
                        const Attention& a, cudaStream_t stream);

}  // namespace gradus::cuda
