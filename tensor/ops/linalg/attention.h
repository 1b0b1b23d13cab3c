// Raw scaled dot-product attention and its gradients, without the matrix of weights in memory. The
// differentiable form, in gradus/autograd/ops/linalg/attention.h, checks the arguments.
#pragma once

#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

struct AttentionSpec {
  double scale = 1;
  bool causal = false;
  double dropout = 0;            // probability of dropping a weight
  DrawKey draw = {};             // of the dropout mask [...,L,S], as for dropout_mask_kernel
  bool may_use_library = false;  // which may compile a kernel for these shapes, for seconds
};
// Lists the tensor of the draw for KernelSlot.
template <class F> void for_each_tensor(const AttentionSpec& spec, F f) { f(spec.draw.base); }

inline constexpr int64_t kMaxCudaAttentionHead = 256;  // maximum of E and V on CUDA

// With scores = scale q k^T + mask, where a bool mask and `causal` set scores to -infinity:
//   max = max_s scores,  total = sum_s exp(scores - max),  w = exp(scores - max) / total,  y = dropout(w) v
// Shapes: q [...,L,E], k [...,S,E], v [...,S,V], mask [...,L,S], bool or of q's dtype, or undefined; leading
// dims and all dims of the mask broadcast. y [...,L,V] has q's dtype. softmax_stats [...,L,2] is max and total of
// each query, in f32, or in f64 for f64; where attention_by_library, [...,L,1] is max + log(total). The dims of y lie
// in memory in the order of q's, and those of the gradients in the order of q's, k's and v's; dims that broadcast are
// outermost, the last one is innermost. On the CPU f64 is not supported, on CUDA an E or V above kMaxCudaAttentionHead.
struct AttentionOutput {
  Tensor y, softmax_stats;
};
AttentionOutput attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                          const AttentionSpec& spec);
// The gradients have q's dtype and the batch dims of y.
struct AttentionGrads {
  Tensor dq, dk, dv;
};
AttentionGrads attention_backward(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& mask, const AttentionOutput& result,
                                  const AttentionSpec& spec);

// Kernels: no size is 0 except E. All have y's batch dims, with stride 0 where they broadcast. softmax_stats is
// row-major; elements of y, dq, dk and dv are adjacent in the last dim. mask [...,L,S] is bool, of q's dtype or
// undefined. On the CPU all are f32 with adjacent elements in the last dim; on CUDA operands have any strides and one
// floating dtype.
extern KernelSlot<void(const Tensor& y, const Tensor& softmax_stats, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& mask, const AttentionSpec&)>
    attention_kernel;
// Whether attention_kernel calls a library for these operands of CUDA. Null where CUDA is not linked.
extern bool (*attention_by_library)(const Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask, const AttentionSpec&);
extern KernelSlot<void(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dy,
                       const Tensor& y, const Tensor& softmax_stats, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& mask, const AttentionSpec&)>
    attention_backward_kernel;

}  // namespace gradus::raw
