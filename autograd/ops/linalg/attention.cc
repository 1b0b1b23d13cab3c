// Scaled dot-product attention: y = dropout(w) v with w = softmax(scale q k^T + mask), for queries
// q [..., L, E], keys k [..., S, E] and values v [..., S, V]. Kernels compute y and the gradients without storing
// w [..., L, S]. Other calls (uses_kernel), and gradients of higher order, are composed of the recorded
// ops matmul, softmax and dropout, which have rules of their own.
#include "gradus/autograd/ops/linalg/attention.h"

#include <algorithm>
#include <cmath>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/dropout.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/softmax.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/linalg/attention.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

// Returns the dims of x before the last two.
Shape batch_of(const Tensor& x) {
  Shape s = x.shape();
  s.erase(s.size() - 1);
  s.erase(s.size() - 1);
  return s;
}

// Checks shapes, dtypes and options. An undefined mask is valid. Errors: those of the header.
void check(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const auto given = [&] { return concat("q ", describe(q), ", k ", describe(k), ", v ", describe(v)); };
  if (q.dim() < 2 || k.dim() < 2 || v.dim() < 2 || q.size(-1) != k.size(-1) || k.size(-2) != v.size(-2))
    throw ShapeError(op, "expected q [...,L,E], k [...,S,E], v [...,S,V], got ", given());
  const Shape batch = broadcast_shapes(broadcast_shapes(batch_of(q), batch_of(k), op), batch_of(v), op);
  check_floating(op, "q", q);
  check_same_dtype(op, "k", k, "q", q);
  check_same_dtype(op, "v", v, "q", q);
  autograd::check_same_device(op, "k", k, "q", q);
  autograd::check_same_device(op, "v", v, "q", q);
  if (o.mask.defined()) autograd::check_same_device(op, "mask", o.mask, "q", q);
  if (!(o.dropout >= 0 && o.dropout <= 1))
    throw ValueError(op, "expected dropout in [0, 1], got ", o.dropout);
  if (!o.mask.defined()) return;
  if (o.mask.dtype() != DType::kBool && o.mask.dtype() != q.dtype())
    throw DTypeError(op, "expected a mask of bool or of q's dtype, got mask ", describe(o.mask), ", q ",
                     describe(q), conversion_hint("mask", DType::kBool));
  Shape scores = batch;
  scores.push_back(q.size(-2));
  scores.push_back(k.size(-2));
  if (broadcast_shapes(scores, o.mask.shape(), op) != scores)
    throw ShapeError(op, "expected a mask that broadcasts to the scores ", scores, ", got ",
                     describe(o.mask));
}

// Returns a bool[L,S] that is true where key s is no later than query l.
Tensor causal_mask(int64_t l, int64_t s, Device device) {
  const auto positions = [&](int64_t n) { return arange(0, n, 1, {DType::kI64, device}); };
  return ge(unsqueeze(positions(l), 1), unsqueeze(positions(s), 0));
}

double scale_of(const Tensor& q, const AttentionOptions& o) {
  return o.scale ? *o.scale : 1 / std::sqrt(double(q.size(-1)));
}

// Returns softmax(scale q k^T + mask).
Tensor weights_of(const Tensor& q, const Tensor& k, const Tensor& mask, bool causal, double scale) {
  // Scales the queries instead of the scores, because they have fewer elements.
  Tensor scores = matmul(q * scale, transpose(k, -2, -1));
  if (mask.defined()) scores = mask.dtype() == DType::kBool ? where(mask, scores, -INFINITY) : scores + mask;
  if (causal) scores = where(causal_mask(q.size(-2), k.size(-2), q.device()), scores, -INFINITY);
  return softmax(scores, -1);
}

// Returns y and w, composed of other ops.
AttentionResult composed(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const Tensor weights = weights_of(q, k, o.mask, o.causal, scale_of(q, o));
  return {matmul(o.dropout > 0 ? dropout(weights, o.dropout) : weights, v), weights};
}

// Computes the gradients by differentiable ops, for gradients of higher order. With dw = dropout(dy v^T):
//   dscores = w (dw - sum(dw w)),  dq = scale dscores k,  dk = scale dscores^T q,  dv = dropout(w)^T dy
std::vector<Tensor> grads_by_ops(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Tensor& mask, const raw::AttentionSpec& spec) {
  const Tensor w = weights_of(q, k, mask, spec.causal, spec.scale), dy_v = matmul(dy, transpose(v, -2, -1));
  const Tensor keep = spec.dropout > 0 ? raw::dropout_mask(dy_v, 1 - spec.dropout, spec.draw) : Tensor();
  const auto drop = [&](const Tensor& x) {
    return keep.defined() ? masked_scale(x, keep, spec.dropout == 1 ? 0 : 1 / (1 - spec.dropout)) : x;
  };
  const Tensor dw = drop(dy_v);
  const Tensor dscores = w * (dw - sum(dw * w, Dims{-1}, true));
  return {matmul(dscores, k) * spec.scale, matmul(transpose(dscores, -2, -1), q) * spec.scale,
          matmul(transpose(drop(w), -2, -1), dy)};
}

// Returns whether a kernel computes this call. The dropout mask of kernels has the batch dims of y, and that of
// composed attention those of the weights. CUDA's kernels keep rows of results in registers, whose number limits
// E and V. The CPU's kernels convert 16-bit floats to f32, and are faster than composed bf16 products and softmax only
// if they skip the keys after the query.
bool uses_kernel(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  if (o.mask.defined() && autograd::is_tracked(o.mask)) return false;
  const Shape weights = broadcast_shapes(batch_of(q), batch_of(k), "attention");
  if (o.dropout > 0 && broadcast_shapes(weights, batch_of(v), "attention") != weights) return false;
  if (q.device().type == DeviceType::kCUDA)
    return std::max(q.size(-1), v.size(-1)) <= raw::kMaxCudaAttentionHead;
  return q.dtype() == DType::kF32 || (q.dtype() != DType::kF64 && o.causal);
}

// Whether the call is in a run of a checkpoint, or of a pipeline's recomputation: both runs must have the same kernel.
bool runs_twice() {
  const auto is_probe = [](const auto& recording) { return autograd::as_recording(recording)->is_probe(); };
  return autograd::is_recomputing() || std::ranges::any_of(autograd::open_recordings(), is_probe);
}

// Returns y by the kernel.
Tensor fused(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  raw::AttentionSpec spec{.scale = scale_of(q, o), .causal = o.causal, .dropout = o.dropout};
  if (o.dropout > 0) spec.draw = raw::next_dropout_draw(q.device());
  spec.may_use_library = autograd::any_tracked(q, k, v) && !runs_twice();
  const auto [y, softmax_stats] = raw::attention(q, k, v, o.mask, spec);
  if (Recorder r{"scaled_dot_product_attention", q, k, v})
    r.record_joint(
        {&y, 1}, {q, k, v},
        [q = r.save(q), k = r.save(k), v = r.save(v), mask = r.save(o.mask), y = r.save_output(y),
         softmax_stats = softmax_stats,
         spec](std::vector<Tensor> dys, autograd::Needs) -> std::vector<Tensor> {
          const Tensor dy = dys[0], tq = q.get(), tk = k.get(), tv = v.get();
          if (autograd::any_tracked(dy, tq, tk, tv)) return grads_by_ops(dy, tq, tk, tv, mask.get(), spec);
          const auto g = raw::attention_backward(dy, tq, tk, tv, mask.get(), {y.get(), softmax_stats}, spec);
          return {g.dq, g.dk, g.dv};
        });
  return y;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  const OpCall call("scaled_dot_product_attention", {{"q", q}, {"k", k}, {"v", v}});
  if (autograd::Casting cast{"scaled_dot_product_attention"}) {
    AttentionOptions low = options;
    low.mask = cast(options.mask);
    return scaled_dot_product_attention(cast(q), cast(k), cast(v), low);
  }
  check("scaled_dot_product_attention", q, k, v, options);
  if (uses_kernel(q, k, v, options)) return fused(q, k, v, options);
  return composed(q, k, v, options).output;
}

AttentionResult attention_with_weights(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOptions& options) {
  const OpCall call("attention_with_weights", {{"q", q}, {"k", k}, {"v", v}});
  if (autograd::Casting cast{"attention_with_weights"}) {
    AttentionOptions low = options;
    low.mask = cast(options.mask);
    return attention_with_weights(cast(q), cast(k), cast(v), low);
  }
  check("attention_with_weights", q, k, v, options);
  return composed(q, k, v, options);
}

}  // namespace gradus
