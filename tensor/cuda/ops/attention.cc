// Sets the CUDA kernels of raw::attention_kernel and raw::attention_backward_kernel: converts tensors to the
// arguments of the launchers in kernels/attention.h. Operands have one floating dtype and any strides; results
// have adjacent elements in the last dim. Work is queued on the current stream of the tensors' device.
#include "gradus/tensor/ops/linalg/attention.h"

#include "gradus/tensor/cuda/kernels/attention.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

// Returns the matrices of x [batch..., rows, columns], without the batch dims of size 1.
AttentionOperand operand_of(const Tensor& x) {
  AttentionOperand operand{};
  if (!x.defined()) return operand;
  operand.data = x.raw_ptr(), operand.row = x.stride(-2), operand.column = x.stride(-1);
  for (int d = 0, next = 0; d < x.dim() - 2; ++d)
    if (x.size(d) != 1) operand.batch[next++] = x.stride(d);
  return operand;
}

Attention problem_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& y,
                     const raw::AttentionSpec& spec) {
  Attention a;
  a.L = q.size(-2), a.S = k.size(-2), a.E = q.size(-1), a.V = v.size(-1);
  for (int d = 0; d < q.dim() - 2; ++d)
    if (q.size(d) != 1) a.batch[a.dims++] = q.size(d), a.matrices *= q.size(d);
  a.q = operand_of(q), a.k = operand_of(k), a.v = operand_of(v), a.mask = operand_of(mask),
  a.y = operand_of(y);
  if (mask.defined())
    a.mask_type = mask.dtype() == DType::kBool ? AttentionMask::kBool : AttentionMask::kAdded;
  a.scale = spec.scale, a.causal = spec.causal;
  if (spec.dropout > 0) {
    const auto* const base = spec.draw.base.defined() ? spec.draw.base.raw_ptr() : nullptr;
    a.drops = 1, a.keep = draws::DropoutMask(1 - spec.dropout);
    a.keep_scale = spec.dropout < 1 ? 1 / (1 - spec.dropout) : 0;
    a.key = {spec.draw.philox, static_cast<const uint64_t*>(base)};
  }
  return a;
}

void attention_cuda(const Tensor& y, const Tensor& softmax_stats, const Tensor& q, const Tensor& k,
                    const Tensor& v, const Tensor& mask, const raw::AttentionSpec& spec) {
  const cudaStream_t stream = stream_for({&y, &softmax_stats, &q, &k, &v, &mask, &spec.draw.base});
  dispatch_all_floating(q.dtype(), [&]<class T>() {
    attention<T>("attention", softmax_stats.ptr<compute_t<T>>(), problem_of(q, k, v, mask, y, spec), stream);
  });
}

void attention_backward_cuda(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dy,
                             const Tensor& y, const Tensor& softmax_stats, const Tensor& q, const Tensor& k,
                             const Tensor& v, const Tensor& mask, const raw::AttentionSpec& spec) {
  const cudaStream_t stream =
      stream_for({&dq, &dk, &dv, &dy, &y, &softmax_stats, &q, &k, &v, &mask, &spec.draw.base});
  Attention a = problem_of(q, k, v, mask, y, spec);
  a.dy = operand_of(dy), a.dq = operand_of(dq), a.dk = operand_of(dk), a.dv = operand_of(dv);
  dispatch_all_floating(q.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Tensor dy_y = workspace_for(q, softmax_stats.numel() / 2 * int64_t{sizeof(C)});
    attention_backward<T>("attention_backward", static_cast<C*>(dy_y.raw_ptr()), softmax_stats.ptr<C>(), a,
                          stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::attention_kernel.cuda = &attention_cuda,
                                      raw::attention_backward_kernel.cuda = &attention_backward_cuda, true);

}  // namespace
}  // namespace gradus::cuda
