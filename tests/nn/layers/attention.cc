// Rows of the layer table (layer_table.h) for MultiheadAttention; attention.py has PyTorch's values.
#include <cmath>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

using Options = nn::MultiheadAttentionOptions;
using nn::AttentionCallOptions;
using nn::MultiheadAttention;

// Attention of x[0] to keys x[1] and values x[2], or to itself if there are not three inputs. Results: the
// output, and the weights if the options ask for them.
Row mha(std::string name, Options o, std::function<AttentionCallOptions(X)> options, Checks checks = {}) {
  const auto call = [options](MultiheadAttention& m, X x) {
    const bool three = x.size() == 3;
    const nn::AttentionResult r = m(x[0], x[three ? 1 : 0], x[three ? 2 : 0], options(x));
    std::vector<Tensor> y{r.output};
    if (r.weights.defined()) y.push_back(r.weights);
    return y;
  };
  return row<MultiheadAttention>(std::move(name), o, call, std::move(checks));
}
Row mha(std::string name, Options o, AttentionCallOptions options = {}, Checks checks = {}) {
  return mha(
      std::move(name), o, [options](X) { return options; }, std::move(checks));
}

// Masks for 4 positions of 3 sequences; true excludes: keys later than the query, keys that are padding.
Tensor causal() {
  const Tensor i = arange(4);
  return lt(unsqueeze(i, 1), unsqueeze(i, 0));
}
Tensor padding() { return to(reshape(tensor({0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1}), {3, 4}), DType::kBool); }

AttentionCallOptions masks_of(X x) {
  const Tensor padding = gt(pattern({x[0].size(1), 5}, 31), 1.0);
  return {.key_padding_mask = raw::to(padding, x[0].device()), .attn_mask = like(pattern({5, 5}, 32), x[0])};
}

// For errors: a self-attention of x [4,3,6], and one with other keys and values.
void attend(AttentionCallOptions options) {
  const Tensor x = ones({4, 3, 6});
  MultiheadAttention({.embed_dim = 6, .num_heads = 2})(x, x, x, options);
}
void attend(const Tensor& key, const Tensor& value) {
  MultiheadAttention({.embed_dim = 6, .num_heads = 2})(ones({4, 3, 6}), key, value);
}

std::vector<Row> table() {
  const Shape x{5, kRows, 6};
  return {
      mha("MultiheadAttention", {.embed_dim = 6, .num_heads = 2}, AttentionCallOptions{},
          {.inputs = {x},
           .roundings = 32,
           .errors =
               {LAYER_ERROR(ValueError, MultiheadAttention({.embed_dim = 6, .num_heads = 4}),
                            "[MultiheadAttention]", "6 and 4"),
                LAYER_ERROR(ValueError, MultiheadAttention({.embed_dim = 6, .num_heads = 2, .dropout = -1}),
                            "dropout", "-1"),
                LAYER_ERROR(ValueError, MultiheadAttention({.embed_dim = 6, .num_heads = 2, .kdim = -1}),
                            "kdim", "-1"),
                LAYER_ERROR(ShapeError, attend(ones({4, 3, 5}), ones({4, 3, 6})), "[MultiheadAttention]",
                            "f32[4,3,5]"),
                LAYER_ERROR(ShapeError, attend(ones({5, 3, 6}), ones({4, 3, 6})), "f32[5,3,6]", "f32[4,3,6]"),
                LAYER_ERROR(ShapeError, attend(ones({4, 2, 6}), ones({4, 2, 6})), "f32[4,2,6]"),
                LAYER_ERROR(ShapeError, attend({.attn_mask = ones({4, 5})}), "attn_mask", "[4,4]", "[6,4,4]",
                            "f32[4,5]"),
                LAYER_ERROR(ShapeError, attend({.key_padding_mask = ones({4, 3})}), "key_padding_mask",
                            "[3,4]", "f32[4,3]")}}),
      mha("MultiheadAttention/self", {.embed_dim = 6, .num_heads = 2, .batch_first = true},
          AttentionCallOptions{},
          {.prints = "MultiheadAttention(embed_dim=6, num_heads=2, batch_first=true)"}),
      mha("MultiheadAttention/heads", {.embed_dim = 6, .num_heads = 2, .bias = false},
          {.average_attn_weights = false}),
      mha("MultiheadAttention/no_weights", {.embed_dim = 6, .num_heads = 2}, {.need_weights = false}),
      mha("MultiheadAttention/sizes", {.embed_dim = 6, .num_heads = 2, .kdim = 4, .vdim = 5},
          AttentionCallOptions{}),
      mha("MultiheadAttention/causal", {.embed_dim = 6, .num_heads = 2, .kdim = 4, .vdim = 3},
          {.causal = true}, {.inputs = {x, {5, kRows, 4}, {5, kRows, 3}}, .roundings = 32, .golden = false}),
      mha("MultiheadAttention/extra",
          {.embed_dim = 6, .num_heads = 2, .add_bias_kv = true, .add_zero_attn = true},
          [](X) { return AttentionCallOptions{.attn_mask = causal()}; }),
      mha("MultiheadAttention/extra_masks",
          {.embed_dim = 6, .num_heads = 2, .add_bias_kv = true, .add_zero_attn = true}, masks_of,
          {.inputs = {x}, .roundings = 32, .golden = false}),
      mha("MultiheadAttention/masks", {.embed_dim = 6, .num_heads = 2, .batch_first = true},
          [](X) { return AttentionCallOptions{.key_padding_mask = padding(), .attn_mask = causal()}; }),
      mha("MultiheadAttention/float_mask", {.embed_dim = 6, .num_heads = 2},
          [](X x) { return AttentionCallOptions{.attn_mask = x[1]}; }),
      mha("MultiheadAttention/mask_per_head", {.embed_dim = 6, .num_heads = 2},
          [](X x) { return AttentionCallOptions{.attn_mask = x[1]}; }),
      mha("MultiheadAttention/unbatched", {.embed_dim = 6, .num_heads = 2}),
  };
}

const bool added = add_rows("attention", table());

}  // namespace
}  // namespace gradus::layers
