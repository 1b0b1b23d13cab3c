#include <cmath>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {
namespace {

using Options = nn::MultiheadAttentionOptions;

GoldenLayer mha(std::string name, Options o, std::function<nn::AttentionCallOptions(X)> options) {
  return golden<nn::MultiheadAttention>(std::move(name), o, [options](nn::MultiheadAttention& m, X x) {
    const bool three = x.size() == 3;
    const nn::AttentionResult r = m(x[0], x[three ? 1 : 0], x[three ? 2 : 0], options(x));
    std::vector<Tensor> y{r.output};
    if (r.weights.defined()) y.push_back(r.weights);
    return y;
  });
}
GoldenLayer mha(std::string name, Options o, nn::AttentionCallOptions options = {}) {
  return mha(std::move(name), o, [options](X) { return options; });
}

// True where a query would see a later key.
Tensor causal() {
  const Tensor i = arange(4);
  return lt(unsqueeze(i, 1), unsqueeze(i, 0));
}
Tensor padding() { return to(reshape(tensor({0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1}), {3, 4}), DType::kBool); }

}  // namespace

static const bool added = add_golden_layers(
    "attention",
    {
        mha("MultiheadAttention", {.embed_dim = 6, .num_heads = 2}),
        mha("MultiheadAttention/self", {.embed_dim = 6, .num_heads = 2, .batch_first = true}),
        mha("MultiheadAttention/heads", {.embed_dim = 6, .num_heads = 2, .bias = false},
            {.average_attn_weights = false}),
        mha("MultiheadAttention/no_weights", {.embed_dim = 6, .num_heads = 2}, {.need_weights = false}),
        mha("MultiheadAttention/sizes", {.embed_dim = 6, .num_heads = 2, .kdim = 4, .vdim = 5}),
        mha("MultiheadAttention/extra",
            {.embed_dim = 6, .num_heads = 2, .add_bias_kv = true, .add_zero_attn = true},
            [](X) { return nn::AttentionCallOptions{.attn_mask = causal()}; }),
        mha("MultiheadAttention/masks", {.embed_dim = 6, .num_heads = 2, .batch_first = true},
            [](X) { return nn::AttentionCallOptions{.key_padding_mask = padding(), .attn_mask = causal()}; }),
        mha("MultiheadAttention/float_mask", {.embed_dim = 6, .num_heads = 2},
            [](X x) { return nn::AttentionCallOptions{.attn_mask = x[1]}; }),
        mha("MultiheadAttention/mask_per_head", {.embed_dim = 6, .num_heads = 2},
            [](X x) { return nn::AttentionCallOptions{.attn_mask = x[1]}; }),
        mha("MultiheadAttention/unbatched", {.embed_dim = 6, .num_heads = 2}),
    });

}  // namespace gradus::golden
