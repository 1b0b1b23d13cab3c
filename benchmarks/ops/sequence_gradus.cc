// Workloads: attention and recurrent layers, in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (sequence_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

// A workload that computes f and the gradients of all leaves.
template <class F> auto training(std::vector<Tensor> leaves, Tensor dy, F f) {
  return work([=] {
    GradManager gm;
    gm.attach(leaves);
    auto recording = gm.record();
    gm.backward(f(), dy);
    for (const Tensor& t : leaves) t.set_grad({});
  });
}

Entry attention(const char* name, int64_t batch, int64_t heads, int64_t time, int64_t size) {
  return {name, [=] {
            const Shape s{batch, heads, time, size};
            const Tensor q = randn(s), k = randn(s), v = randn(s), dy = randn(s);
            return training({q, k, v}, dy, [=] { return scaled_dot_product_attention(q, k, v); });
          }};
}

template <class L> Entry recurrent(const char* name, int64_t time, int64_t batch, int64_t size) {
  return {name, [=] {
            const auto layer =
                std::make_shared<L>(typename L::Options{.input_size = size, .hidden_size = size});
            const Tensor x = randn({time, batch, size}), dy = randn({time, batch, size});
            std::vector<Tensor> leaves = layer->parameters();
            leaves.push_back(x);
            return training(leaves, dy, [=] { return (*layer)(x).output; });
          }};
}

Entry encoder(const char* name, int64_t batch, int64_t time, int64_t size) {
  return {
      name, [=] {
        const auto layer = std::make_shared<nn::TransformerEncoderLayer>(nn::TransformerEncoderLayerOptions{
            .d_model = size, .nhead = 8, .dim_feedforward = 4 * size, .dropout = 0, .batch_first = true});
        const Tensor x = randn({batch, time, size}), dy = randn({batch, time, size});
        std::vector<Tensor> leaves = layer->parameters();
        leaves.push_back(x);
        return training(leaves, dy, [=] { return (*layer)(x); });
      }};
}

}  // namespace

static const AddWorkloads added(Side::kGradus, "sequence",
                                {
                                    attention("attention 8x8x128x64", 8, 8, 128, 64),
                                    attention("attention 2x8x512x64", 2, 8, 512, 64),
                                    recurrent<nn::LSTM>("lstm 32x64x256", 32, 64, 256),
                                    recurrent<nn::LSTM>("lstm 64x8x64", 64, 8, 64),
                                    recurrent<nn::GRU>("gru 32x64x256", 32, 64, 256),
                                    recurrent<nn::RNN>("rnn 32x64x256", 32, 64, 256),
                                    encoder("transformer layer 8x128x256", 8, 128, 256),
                                });

}  // namespace gradus::bench
