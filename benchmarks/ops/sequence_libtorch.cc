// Workloads: attention and recurrent layers, in LibTorch.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// sequence_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

template <class F> auto training(std::vector<torch::Tensor> leaves, torch::Tensor dy, F f) {
  return work([=]() mutable { torch::autograd::grad({f()}, leaves, {dy}); });
}

Entry attention(const char* name, int64_t batch, int64_t heads, int64_t time, int64_t size) {
  return {name, [=] {
            const auto draw = [=] { return torch::randn({batch, heads, time, size}); };
            auto q = draw().requires_grad_(), k = draw().requires_grad_(), v = draw().requires_grad_();
            return training({q, k, v}, draw(),
                            [=] { return std::get<0>(at::_scaled_dot_product_attention(q, k, v)); });
          }};
}

template <class L, class Options>
Entry recurrent(const char* name, int64_t time, int64_t batch, int64_t size) {
  return {
      name, [=] {
        L layer(Options(size, size));
        auto x = torch::randn({time, batch, size}).requires_grad_(), dy = torch::randn({time, batch, size});
        std::vector<torch::Tensor> leaves = layer->parameters();
        leaves.push_back(x);
        return training(leaves, dy, [=]() mutable { return std::get<0>(layer->forward(x)); });
      }};
}

Entry encoder(const char* name, int64_t batch, int64_t time, int64_t size) {
  return {
      name, [=] {
        torch::nn::TransformerEncoderLayer layer(
            torch::nn::TransformerEncoderLayerOptions(size, 8).dim_feedforward(4 * size).dropout(0));
        // The layout is [time, batch, size].
        auto x = torch::randn({time, batch, size}).requires_grad_(), dy = torch::randn({time, batch, size});
        std::vector<torch::Tensor> leaves = layer->parameters();
        leaves.push_back(x);
        return training(leaves, dy, [=]() mutable { return layer->forward(x); });
      }};
}

}  // namespace

static const AddWorkloads added(
    Side::kLibTorch, "sequence",
    {
        attention("attention 8x8x128x64", 8, 8, 128, 64),
        attention("attention 2x8x512x64", 2, 8, 512, 64),
        recurrent<torch::nn::LSTM, torch::nn::LSTMOptions>("lstm 32x64x256", 32, 64, 256),
        recurrent<torch::nn::LSTM, torch::nn::LSTMOptions>("lstm 64x8x64", 64, 8, 64),
        recurrent<torch::nn::GRU, torch::nn::GRUOptions>("gru 32x64x256", 32, 64, 256),
        recurrent<torch::nn::RNN, torch::nn::RNNOptions>("rnn 32x64x256", 32, 64, 256),
        encoder("transformer layer 8x128x256", 8, 128, 256),
    });

}  // namespace gradus::bench
