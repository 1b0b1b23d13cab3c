// Scaled dot-product attention.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus {

struct AttentionOptions {
  Tensor mask = {};                  // bool: false masks a key; floating point: added to the scores
  bool causal = false;               // masks keys at positions after the query's
  double dropout = 0;                // probability of dropping a weight; for training only
  std::optional<double> scale = {};  // factor of the scores; nullopt: 1 / sqrt(E)
};

// Returns for each query the average of the values, weighted by the softmax of the scores of their keys:
//   y = w v,  w = softmax(scale q k^T + mask)
// A query with all keys masked gives NaN.
// Shapes: q [...,L,E], k [...,S,E], v [...,S,V], mask [...,L,S] -> [...,L,V]; leading dims broadcast.
// Errors: ShapeError, DTypeError for what does not fit; ValueError for a dropout outside [0, 1].
// Source: Vaswani et al., "Attention is all you need", 2017.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

// The same, and also returns the weights w [...,L,S] before dropout.
struct AttentionResult {
  Tensor output, weights;
};
AttentionResult attention_with_weights(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOptions& options = {});

}  // namespace gradus
