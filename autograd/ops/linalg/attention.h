// Attention.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus {

struct AttentionOptions {
  Tensor mask = {};                  // bool: true where a key takes part; floating point: added to the scores
  bool causal = false;               // a query uses only the keys up to its own position
  double dropout = 0;                // probability of dropping a weight; for training only
  std::optional<double> scale = {};  // factor of the scores; none: 1 / sqrt(E)
};

// Returns, for each query, the average of the values, weighted by how well their keys match the query:
//   y = w v,  w = softmax(scale q k^T + mask)
// A query with all keys masked gives NaN.
// Shapes: q [...,L,E], k [...,S,E], v [...,S,V], mask [...,L,S] -> [...,L,V]; leading dims broadcast.
// Errors: ShapeError, DTypeError for what does not fit; ValueError for a dropout outside [0, 1].
// Source: Vaswani et al., "Attention is all you need", 2017.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

// The same with the weights w [...,L,S], before any dropout.
struct AttentionResult {
  Tensor output, weights;
};
AttentionResult attention_with_weights(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOptions& options = {});

}  // namespace gradus
