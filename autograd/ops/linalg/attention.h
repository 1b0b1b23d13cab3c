// Differentiable scaled dot-product attention, as torch.nn.functional.scaled_dot_product_attention. On the
// CPU, f32 and causal 16-bit attention store no L x S weights: each thread has copies of the keys and values of a
// head, and a block of weights. On CUDA no attention with E, V <= 256 stores weights. Otherwise, and for gradients of
// gradients or of the mask, attention is composed of matmul, softmax and dropout, and stores all weights. Under
// autocast q, k and v are cast to the scope's dtype.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus {

struct AttentionOptions {
  Tensor mask = {};     // bool: false masks a key; q's dtype: added to the scores; undefined: none
  bool causal = false;  // masks key s for query l if s > l (also if L != S); combines with `mask`
  double dropout = 0;   // probability of dropping a weight; the caller sets 0 outside of training
  std::optional<double> scale = {};  // factor of the scores; nullopt: 1 / sqrt(E)
};

// Returns for each query the average of the values, weighted by the softmax of the scores of their keys:
//   y = dropout(w) v,  w = softmax(scale q k^T + mask) over the keys
// The score of a masked key is -infinity. A query with all keys masked gives NaN. Differentiable in q, k, v
// and a floating-point mask. Random numbers of the dropout come from the generator of the thread's Context.
// Shapes: q [...,L,E] (L queries), k [...,S,E] (S keys), v [...,S,V] -> [...,L,V]; leading dims broadcast.
//   The mask broadcasts to the scores [...,L,S].
// Errors: ShapeError for shapes that do not match; DTypeError unless q, k and v have one floating-point
// dtype, and the mask bool or that dtype; DeviceError; ValueError for a dropout outside [0, 1].
// Source: Vaswani et al., "Attention is all you need", 2017.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

// As scaled_dot_product_attention. Returns also the weights w [...,L,S], before dropout and differentiable.
struct AttentionResult {
  Tensor output, weights;
};
AttentionResult attention_with_weights(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOptions& options = {});

}  // namespace gradus
