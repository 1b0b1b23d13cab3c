// Rows of the layer table (layer_table.h) for Linear, Bilinear, Flatten, Dropout, Sequential, Embedding and
// the like; basic.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

Row sequential() {
  const auto make = [] {
    auto net = std::make_unique<nn::Sequential>();
    net->add<nn::Linear>({.in = 3, .out = 4});
    net->add<nn::Tanh>();
    net->add<nn::Sequential>().add<nn::Linear>({.in = 4, .out = 2});
    return net;
  };
  const auto run = [](nn::Module& m, X x) {
    return std::vector<Tensor>{static_cast<nn::Sequential&>(m)(x[0])};
  };
  return {{"Sequential", make, run}, {.inputs = {{kRows, 3}}, .roundings = 16}};
}

std::vector<Row> table() {
  const auto of_two = [](nn::Bilinear& m, X x) { return m(x[0], x[1]); };
  return {
      row<nn::Linear>("Linear", {.in = 3, .out = 4}, {.inputs = {{kRows, 3}}}),
      row<nn::Linear>("Linear/plain", {.in = 3, .out = 4, .bias = false}),
      row<nn::Linear>("Linear/vector", {.in = 3, .out = 1}),
      row<nn::Bilinear>(
          "Bilinear", {.in1 = 3, .in2 = 4, .out = 5}, of_two,
          {.inputs = {{kRows, 3}, {kRows, 4}},
           .roundings = 16,
           .prints = "Bilinear(in1=3, in2=4, out=5)",
           .errors = {LAYER_ERROR(ValueError, nn::Bilinear({.in1 = 0, .in2 = 1, .out = 2}), "[Bilinear]",
                                  "0, 1, 2"),
                      LAYER_ERROR(ShapeError,
                                  nn::Bilinear({.in1 = 3, .in2 = 1, .out = 2})(ones({2, 3}), ones({3, 1})),
                                  "[Bilinear]", "f32[2,3]", "f32[3,1]")}}),
      row<nn::Bilinear>("Bilinear/plain", {.in1 = 3, .in2 = 2, .out = 1, .bias = false}, of_two),
      row<nn::Identity>("Identity", {}, {.inputs = {kFlat}, .prints = "Identity()"}),
      row<nn::Flatten>("Flatten", {}, {.inputs = {kImages}}),
      row<nn::Flatten>("Flatten/some", {.start = 0, .end = 1}),
      row<nn::Unflatten>(
          "Unflatten", {.dim = 1, .sizes = {3, -1}},
          {.inputs = {{kRows, 6}},
           .prints = "Unflatten(dim=1, sizes=[3,-1])",
           .errors = {LAYER_ERROR(ShapeError, nn::Unflatten({.dim = 1, .sizes = {2, 2}})(ones({1, 6})),
                                  "[Unflatten]", "[2,2]", "6"),
                      LAYER_ERROR(ShapeError, nn::Unflatten({.dim = 1, .sizes = {-1, -1}})(ones({1, 6})),
                                  "[Unflatten]", "[-1,-1]"),
                      LAYER_ERROR(IndexError, nn::Unflatten({.dim = 2, .sizes = {2, 3}})(ones({1, 6})),
                                  "[Unflatten]", "2")}}),
      row<nn::ChannelShuffle>(
          "ChannelShuffle", {.groups = 2},
          {.inputs = {kImages},
           .golden = false,
           .prints = "ChannelShuffle(groups=2)",
           .errors = {LAYER_ERROR(ShapeError, nn::ChannelShuffle({.groups = 4})(ones({1, 6})),
                                  "[ChannelShuffle]", "4", "f32[1,6]"),
                      LAYER_ERROR(ValueError, nn::ChannelShuffle({.groups = 0})(ones({1, 6})),
                                  "[ChannelShuffle]", "0")}}),
      row<nn::Dropout>("Dropout", {.p = 0.3}, {.inputs = {kFlat}}),
      row<nn::Dropout>("Dropout/none", {.p = 0}),
      sequential(),
      row<nn::Embedding>(
          "Embedding", {.num_embeddings = 5, .embedding_dim = 3},
          {.inputs = {{kRows, 3}},
           .indices = true,
           .errors = {LAYER_ERROR(ValueError, nn::Embedding({.num_embeddings = 0, .embedding_dim = 2}),
                                  "[Embedding]", "0 and 2"),
                      LAYER_ERROR(ValueError,
                                  nn::Embedding({.num_embeddings = 4, .embedding_dim = 2, .padding_idx = 4}),
                                  "[Embedding]", "padding_idx", "4"),
                      LAYER_ERROR(IndexError,
                                  nn::Embedding({.num_embeddings = 1, .embedding_dim = 2})(tensor({1, 1})),
                                  "1")}}),
      row<nn::Embedding>("Embedding/padding", {.num_embeddings = 5, .embedding_dim = 3, .padding_idx = -2},
                         {.prints = "Embedding(num_embeddings=5, embedding_dim=3, padding_idx=-2)"}),
      row<nn::Embedding>("Embedding/freq",
                         {.num_embeddings = 5, .embedding_dim = 3, .scale_grad_by_freq = true}),
      row<nn::Embedding>("Embedding/max_norm", {.num_embeddings = 5, .embedding_dim = 4, .max_norm = 0.5},
                         {.inputs = {{kRows, 3}}, .indices = true, .golden = false}),
  };
}

const bool added = add_rows("basic", table());

}  // namespace
}  // namespace gradus::layers
