// Sets the CUDA kernels of raw::attention_kernel and raw::attention_backward_kernel: converts tensors to the
// arguments of the launchers in kernels/attention.h, or of cuDNN's fused attention in cudnn/attention.h, which
// computes 16-bit floats in training, without mask and dropout, unless Context::deterministic. Operands have one
// floating dtype and any strides; results have adjacent elements in the last dim. Work is queued on the current stream
// of the tensors' device.
#include "gradus/tensor/ops/linalg/attention.h"

#include <optional>
#include <utility>

#include "gradus/tensor/cuda/cudnn/attention.h"
#include "gradus/tensor/cuda/kernels/attention.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"

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

// Returns x [batch...,rows,columns] with two batch dims; undefined if more have another size than 1.
Tensor with_two_batch_dims(const Tensor& x) {
  Shape shape{1, 1, x.size(-2), x.size(-1)};
  gradus::Strides strides{x.numel(), x.numel(), x.stride(-2), x.stride(-1)};
  int next = 1;
  for (int64_t d = x.dim() - 3; d >= 0; --d) {
    if (x.size(d) == 1) continue;
    if (next < 0) return {};
    shape[next] = x.size(d), strides[next] = x.stride(d), --next;
  }
  return view_as_strided(x, shape, strides, x.impl().offset);
}

// Returns the forward by cuDNN, without logsumexp; nothing if cuDNN is not asked.
std::optional<FusedAttention> fused_forward(const Tensor& y, const Tensor& q, const Tensor& k,
                                            const Tensor& v, const raw::AttentionSpec& spec) {
  FusedAttention a{.causal = spec.causal, .scale = spec.scale};
  for (const auto& [to, from] : {std::pair(&a.q, &q), {&a.k, &k}, {&a.v, &v}, {&a.y, &y}})
    if (*to = with_two_batch_dims(*from); !*to) return {};
  if (Context::current().deterministic || !fits_fused_attention(a)) return {};
  return a;
}

bool is_by_cudnn(const Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                 const raw::AttentionSpec& spec) {
  if (!spec.may_use_library || mask.defined() || spec.dropout > 0) return false;
  const std::optional<FusedAttention> a = fused_forward(y, q, k, v, spec);
  if (!a) return false;
  stream_for({&q});  // makes q's device the thread's
  return has_attention_plan("attention", *a);
}

void attention_cuda(const Tensor& y, const Tensor& softmax_stats, const Tensor& q, const Tensor& k,
                    const Tensor& v, const Tensor& mask, const raw::AttentionSpec& spec) {
  const cudaStream_t stream = stream_for({&y, &softmax_stats, &q, &k, &v, &mask, &spec.draw.base});
  if (softmax_stats.size(-1) == 1) {
    std::optional<FusedAttention> a = fused_forward(y, q, k, v, spec);  // as is_by_cudnn has found
    a->logsumexp = with_two_batch_dims(softmax_stats);
    return attend("attention", *a, stream);
  }
  dispatch_all_floating(q.dtype(), [&]<class T>() {
    attention<T>("attention", softmax_stats.ptr<compute_t<T>>(), problem_of(q, k, v, mask, y, spec), stream);
  });
}

// Returns false, and does nothing, if cuDNN is not asked or has no plan.
bool backward_by_cudnn(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dy,
                       const Tensor& y, const Tensor& logsumexp, const Tensor& q, const Tensor& k,
                       const Tensor& v, const raw::AttentionSpec& spec, cudaStream_t stream) {
  std::optional<FusedAttention> a = fused_forward(y, q, k, v, spec);
  if (!a) return false;
  Tensor dy_as_y = dy;
  if (dy.strides() != y.strides()) {
    dy_as_y = empty_strided(y.shape(), y.strides(), {y.dtype(), y.device()});
    raw::copy_(dy_as_y, dy);
  }
  a->is_backward = true, a->logsumexp = with_two_batch_dims(logsumexp), a->dy = with_two_batch_dims(dy_as_y);
  a->dq = with_two_batch_dims(dq), a->dk = with_two_batch_dims(dk), a->dv = with_two_batch_dims(dv);
  if (!fits_fused_attention(*a) || !has_attention_plan("attention_backward", *a)) return false;
  attend("attention_backward", *a, stream);
  return true;
}

void attention_backward_cuda(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dy,
                             const Tensor& y, const Tensor& softmax_stats, const Tensor& q, const Tensor& k,
                             const Tensor& v, const Tensor& mask, const raw::AttentionSpec& spec) {
  const cudaStream_t stream =
      stream_for({&dq, &dk, &dv, &dy, &y, &softmax_stats, &q, &k, &v, &mask, &spec.draw.base});
  const int64_t count = softmax_stats.size(-1);
  if (count == 1 && backward_by_cudnn(dq, dk, dv, dy, y, softmax_stats, q, k, v, spec, stream)) return;
  Attention a = problem_of(q, k, v, mask, y, spec);
  a.dy = operand_of(dy), a.dq = operand_of(dq), a.dk = operand_of(dk), a.dv = operand_of(dv);
  dispatch_all_floating(q.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Tensor dy_y = workspace_for(q, softmax_stats.numel() / count * int64_t{sizeof(C)});
    attention_backward<T>("attention_backward", static_cast<C*>(dy_y.raw_ptr()),
                          {softmax_stats.ptr<C>(), count}, a, stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::attention_kernel.cuda = &attention_cuda,
                                      raw::attention_backward_kernel.cuda = &attention_backward_cuda,
                                      raw::attention_by_library = &is_by_cudnn, true);

}  // namespace
}  // namespace gradus::cuda
