// Rows of the layer table (layer_table.h) for transformer encoders; transformer.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

using Layer = nn::TransformerEncoderLayer;
using nn::TransformerActivation;

// Masks for 4 positions of 3 sequences; true excludes: later positions, padding.
Tensor causal() {
  const Tensor i = arange(4);
  return lt(unsqueeze(i, 1), unsqueeze(i, 0));
}
Tensor padding() { return to(reshape(tensor({0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1}), {3, 4}), DType::kBool); }

std::vector<Row> table() {
  return {
      row<Layer>("TransformerEncoderLayer", {.d_model = 6, .nhead = 2, .dim_feedforward = 5, .dropout = 0},
                 {.errors = {LAYER_ERROR(ValueError, Layer({.d_model = 4, .nhead = 2, .dim_feedforward = 0}),
                                         "[TransformerEncoderLayer]", "dim_feedforward", "0")}}),
      row<Layer>("TransformerEncoderLayer/gelu",
                 {.d_model = 6,
                  .nhead = 2,
                  .dim_feedforward = 5,
                  .dropout = 0,
                  .activation = TransformerActivation::kGELU,
                  .batch_first = true,
                  .norm_first = true},
                 {.inputs = {{kRows, 5, 6}},
                  .roundings = 64,
                  .second_order = true,
                  .prints = "TransformerEncoderLayer(d_model=6, nhead=2, dim_feedforward=5, dropout=0, "
                            "activation=kGELU, batch_first=true, norm_first=true)"}),
      row<Layer>(
          "TransformerEncoderLayer/masks",
          {.d_model = 6, .nhead = 2, .dim_feedforward = 5, .dropout = 0, .batch_first = true},
          [](Layer& l, X x) { return l(x[0], {.mask = causal(), .src_key_padding_mask = padding()}); }),
      row<Layer>("TransformerEncoderLayer/default", {.d_model = 6, .nhead = 2, .dim_feedforward = 5}),
      row<nn::TransformerEncoder>(
          "TransformerEncoder",
          {.layer = {.d_model = 6, .nhead = 2, .dim_feedforward = 5, .dropout = 0}, .num_layers = 2},
          {.prints =
               "TransformerEncoder(layer={d_model=6, nhead=2, dim_feedforward=5, dropout=0}, num_layers=2)",
           .errors = {LAYER_ERROR(
               ValueError, nn::TransformerEncoder({.layer = {.d_model = 4, .nhead = 2}, .num_layers = 0}),
               "[TransformerEncoder]", "num_layers", "0")}}),
      row<nn::TransformerEncoder>(
          "TransformerEncoder/norm",
          {.layer = {.d_model = 6, .nhead = 2, .dim_feedforward = 5, .dropout = 0, .norm_first = true},
           .num_layers = 2,
           .norm = true}),
      row<Layer>("TransformerEncoderLayer/norm_last",
                 {.d_model = 6,
                  .nhead = 2,
                  .dim_feedforward = 8,
                  .dropout = 0,
                  .activation = TransformerActivation::kGELU},
                 {.inputs = {{5, kRows, 6}}, .roundings = 64, .golden = false}),
      row<Layer>("TransformerEncoderLayer/causal",
                 {.d_model = 6,
                  .nhead = 2,
                  .dim_feedforward = 8,
                  .dropout = 0,
                  .activation = TransformerActivation::kGELU,
                  .norm_first = true},
                 [](Layer& l, X x) {
                   return l(x[0], {.mask = like(pattern({5, 5}, 32), x[0]), .causal = true});
                 },
                 {.inputs = {{5, kRows, 6}}, .roundings = 64, .golden = false}),
      row<nn::TransformerEncoder>("TransformerEncoder/gelu",
                                  {.layer = {.d_model = 6,
                                             .nhead = 2,
                                             .dim_feedforward = 8,
                                             .dropout = 0,
                                             .activation = TransformerActivation::kGELU},
                                   .num_layers = 2},
                                  {.inputs = {{5, kRows, 6}}, .roundings = 128, .golden = false}),
  };
}

const bool added = add_rows("transformer", table());

}  // namespace

}  // namespace gradus::layers
