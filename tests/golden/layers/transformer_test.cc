#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {
namespace {

using Layer = nn::TransformerEncoderLayer;
using nn::TransformerActivation;

// True where a place would see a later one.
Tensor causal() {
  const Tensor i = arange(4);
  return lt(unsqueeze(i, 1), unsqueeze(i, 0));
}
Tensor padding() { return to(reshape(tensor({0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1}), {3, 4}), DType::kBool); }

}  // namespace

static const bool added = add_golden_layers(
    "transformer",
    {
        golden<Layer>("TransformerEncoderLayer",
                      {.d_model = 6, .nhead = 2, .dim_feedforward = 5, .dropout = 0}),
        golden<Layer>("TransformerEncoderLayer/gelu", {.d_model = 6,
                                                       .nhead = 2,
                                                       .dim_feedforward = 5,
                                                       .dropout = 0,
                                                       .activation = TransformerActivation::kGELU,
                                                       .batch_first = true,
                                                       .norm_first = true}),
        golden<Layer>(
            "TransformerEncoderLayer/masks",
            {.d_model = 6, .nhead = 2, .dim_feedforward = 5, .dropout = 0, .batch_first = true},
            [](Layer& l, X x) { return l(x[0], {.mask = causal(), .src_key_padding_mask = padding()}); }),
        golden<Layer>("TransformerEncoderLayer/default", {.d_model = 6, .nhead = 2, .dim_feedforward = 5}),
        golden<nn::TransformerEncoder>(
            "TransformerEncoder",
            {.layer = {.d_model = 6, .nhead = 2, .dim_feedforward = 5, .dropout = 0}, .num_layers = 2}),
        golden<nn::TransformerEncoder>(
            "TransformerEncoder/norm",
            {.layer = {.d_model = 6, .nhead = 2, .dim_feedforward = 5, .dropout = 0, .norm_first = true},
             .num_layers = 2,
             .norm = true}),
    });

}  // namespace gradus::golden
