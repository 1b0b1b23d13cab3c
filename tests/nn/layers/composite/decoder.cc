// Rows of the layer table (layer_table.h) for transformers with a decoder; decoder.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

using Layer = nn::TransformerDecoderLayer;
using nn::Transformer;
using nn::TransformerActivation;
using nn::TransformerDecoder;

// Masks; true excludes: columns more than `distance` after the row, padding.
Tensor after(int64_t rows, int64_t columns, int64_t distance) {
  return gt(unsqueeze(arange(columns), 0), unsqueeze(arange(rows), 1) + distance);
}
Tensor padding() { return to(reshape(tensor({0, 0, 0, 1, 0, 1, 0, 0}), {2, 4}), DType::kBool); }
Tensor tgt_padding() { return to(reshape(tensor({0, 0, 1, 0, 0, 0}), {2, 3}), DType::kBool); }

std::vector<Row> table() {
  const auto two = [](auto& m, X x) { return m(x[0], x[1]); };
  const Layer::Options small{.d_model = 4, .nhead = 2, .dim_feedforward = 5, .dropout = 0};
  Layer::Options first = small, batched = small;
  first.norm_first = true;
  batched.batch_first = true;
  return {
      row<Layer>("TransformerDecoderLayer", small, two,
                 {.errors = {LAYER_ERROR(ValueError, Layer({.d_model = 4, .nhead = 2, .dim_feedforward = 0}),
                                         "[TransformerDecoderLayer]", "dim_feedforward", "0"),
                             LAYER_ERROR(ShapeError,
                                         Layer({.d_model = 4, .nhead = 2})(ones({3, 2, 4}), ones({4, 3, 4})),
                                         "[3,2,4]", "[4,3,4]")}}),
      row<Layer>("TransformerDecoderLayer/gelu",
                 {.d_model = 4,
                  .nhead = 2,
                  .dim_feedforward = 5,
                  .dropout = 0,
                  .activation = TransformerActivation::kGELU,
                  .batch_first = true,
                  .norm_first = true,
                  .bias = false},
                 two,
                 {.inputs = {{kRows, 3, 4}, {kRows, 5, 4}},
                  .roundings = 64,
                  .second_order = true,
                  .prints = "TransformerDecoderLayer(d_model=4, nhead=2, dim_feedforward=5, dropout=0, "
                            "activation=kGELU, batch_first=true, norm_first=true, bias=false)"}),
      row<Layer>("TransformerDecoderLayer/masks", batched,
                 [](Layer& m, X x) {
                   return m(x[0], x[1],
                            {.tgt_mask = after(3, 3, 0),
                             .memory_mask = after(3, 4, 1),
                             .tgt_key_padding_mask = tgt_padding(),
                             .memory_key_padding_mask = padding()});
                 }),
      row<Layer>("TransformerDecoderLayer/causal", small,
                 [](Layer& m, X x) { return m(x[0], x[1], {.tgt_causal = true}); }),
      row<Layer>("TransformerDecoderLayer/default", {.d_model = 4, .nhead = 2, .dim_feedforward = 5}, two),
      row<TransformerDecoder>(
          "TransformerDecoder", {.layer = small, .num_layers = 2}, two,
          {.errors = {LAYER_ERROR(ValueError,
                                  TransformerDecoder({.layer = {.d_model = 4, .nhead = 2}, .num_layers = 0}),
                                  "[TransformerDecoder]", "num_layers", "0")}}),
      row<TransformerDecoder>("TransformerDecoder/norm", {.layer = first, .num_layers = 1, .norm = true},
                              two),
      row<Transformer>(
          "Transformer",
          {.d_model = 4,
           .nhead = 2,
           .num_encoder_layers = 1,
           .num_decoder_layers = 2,
           .dim_feedforward = 5,
           .dropout = 0},
          two,
          {.errors = {LAYER_ERROR(ValueError, Transformer({.num_encoder_layers = 0}), "num_layers", "0"),
                      LAYER_ERROR(ValueError, Transformer({.d_model = 0}), "embed_dim", "0"),
                      LAYER_ERROR(ShapeError, Transformer::generate_square_subsequent_mask(-1), "[-1,-1]"),
                      LAYER_ERROR(ValueError, Transformer::generate_square_subsequent_mask(2, {DType::kI64}),
                                  "i64")}}),
      row<Transformer>("Transformer/masks",
                       {.d_model = 4,
                        .nhead = 2,
                        .num_encoder_layers = 1,
                        .num_decoder_layers = 1,
                        .dim_feedforward = 5,
                        .dropout = 0,
                        .activation = TransformerActivation::kGELU,
                        .batch_first = true,
                        .norm_first = true},
                       [](Transformer& m, X x) {
                         return m(x[0], x[1],
                                  {.tgt_mask = Transformer::generate_square_subsequent_mask(
                                       3, {x[0].dtype(), x[0].device()}),
                                   .memory_mask = after(3, 4, 1),
                                   .src_key_padding_mask = padding(),
                                   .memory_key_padding_mask = padding()});
                       }),
  };
}

const bool added = add_rows("composite/decoder", table());

}  // namespace
}  // namespace gradus::layers
