// Scaled dot-product attention: y = dropout(w) v with w = softmax(scale q k^T + mask), for queries
// q [..., L, E], keys k [..., S, E] and values v [..., S, V]. It is composed of the recorded ops matmul,
// softmax and dropout, so it needs no backward rule and materializes the weights w [..., L, S].
#include "gradus/autograd/ops/linalg/attention.h"

#include <cmath>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/dropout.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/softmax.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/creation.h"
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

// Returns y and w. `op` is the calling function's name, for errors. A query with all keys masked gives NaN.
AttentionResult attend(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& o) {
  check(op, q, k, v, o);
  // Scales the queries instead of the scores, because they have fewer elements.
  const double scale = o.scale ? *o.scale : 1 / std::sqrt(double(q.size(-1)));
  Tensor scores = matmul(q * scale, transpose(k, -2, -1));
  if (o.mask.defined())
    scores = o.mask.dtype() == DType::kBool ? where(o.mask, scores, -INFINITY) : scores + o.mask;
  if (o.causal) scores = where(causal_mask(q.size(-2), k.size(-2), q.device()), scores, -INFINITY);
  const Tensor weights = softmax(scores, -1);
  scores = Tensor();  // releases the scores' memory before the last product
  return {matmul(o.dropout > 0 ? dropout(weights, o.dropout) : weights, v), weights};
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
  return attend("scaled_dot_product_attention", q, k, v, options).output;
}

AttentionResult attention_with_weights(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOptions& options) {
  const OpCall call("attention_with_weights", {{"q", q}, {"k", k}, {"v", v}});
  if (autograd::Casting cast{"attention_with_weights"}) {
    AttentionOptions low = options;
    low.mask = cast(options.mask);
    return attention_with_weights(cast(q), cast(k), cast(v), low);
  }
  return attend("attention_with_weights", q, k, v, options);
}

}  // namespace gradus
