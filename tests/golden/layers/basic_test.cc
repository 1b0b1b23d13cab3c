#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {
namespace {

template <class L> GoldenLayer of_two(std::string name, typename L::Options o) {
  return golden<L>(std::move(name), o, [](L& m, X x) { return m(x[0], x[1]); });
}

GoldenLayer sequential() {
  return {"Sequential",
          [] {
            auto net = std::make_unique<nn::Sequential>();
            net->add<nn::Linear>({.in = 3, .out = 4});
            net->add<nn::Tanh>();
            net->add<nn::Sequential>().add<nn::Linear>({.in = 4, .out = 2});
            return net;
          },
          [](nn::Module& m, X x) { return std::vector<Tensor>{static_cast<nn::Sequential&>(m)(x[0])}; }};
}

}  // namespace

static const bool added = add_golden_layers(
    "basic", {
                 golden<nn::Linear>("Linear", {.in = 3, .out = 4}),
                 golden<nn::Linear>("Linear/plain", {.in = 3, .out = 4, .bias = false}),
                 golden<nn::Linear>("Linear/vector", {.in = 3, .out = 1}),
                 of_two<nn::Bilinear>("Bilinear", {.in1 = 3, .in2 = 4, .out = 5}),
                 of_two<nn::Bilinear>("Bilinear/plain", {.in1 = 3, .in2 = 2, .out = 1, .bias = false}),
                 golden<nn::Identity>("Identity"),
                 golden<nn::Flatten>("Flatten"),
                 golden<nn::Flatten>("Flatten/some", {.start = 0, .end = 1}),
                 golden<nn::Unflatten>("Unflatten", {.dim = 1, .sizes = {3, -1}}),
                 golden<nn::Dropout>("Dropout", {.p = 0.3}),
                 golden<nn::Dropout>("Dropout/none", {.p = 0}),
                 sequential(),
                 golden<nn::Embedding>("Embedding", {.num_embeddings = 5, .embedding_dim = 3}),
                 golden<nn::Embedding>("Embedding/padding",
                                       {.num_embeddings = 5, .embedding_dim = 3, .padding_idx = -2}),
                 golden<nn::Embedding>("Embedding/freq",
                                       {.num_embeddings = 5, .embedding_dim = 3, .scale_grad_by_freq = true}),
             });

}  // namespace gradus::golden
