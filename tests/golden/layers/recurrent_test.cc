#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {
namespace {

Tensor input(X x, size_t i) { return i < x.size() ? x[i] : Tensor(); }
std::vector<Tensor> all(const LSTMState& s) { return {s.h, s.c}; }

template <class L> GoldenLayer recurrent(std::string name, typename L::Options o) {
  return golden<L>(std::move(name), o, [](L& layer, X x) {
    const nn::RNNResult r = layer(x[0], input(x, 1));
    return std::vector<Tensor>{r.output, r.h};
  });
}

GoldenLayer lstm(std::string name, nn::LSTMOptions o) {
  return golden<nn::LSTM>(std::move(name), o, [](nn::LSTM& layer, X x) {
    const auto [y, state] = layer(x[0], {input(x, 1), input(x, 2)});
    return std::vector<Tensor>{y, state.h, state.c};
  });
}

template <class L> GoldenLayer cell(std::string name, typename L::Options o) {
  return golden<L>(std::move(name), o, [](L& layer, X x) { return layer(x[0], input(x, 1)); });
}

GoldenLayer lstm_cell(std::string name, nn::RecurrentCellOptions o) {
  return golden<nn::LSTMCell>(std::move(name), o, [](nn::LSTMCell& layer, X x) {
    return all(layer(x[0], {input(x, 1), input(x, 2)}));
  });
}

}  // namespace

static const bool added = add_golden_layers(
    "recurrent",
    {
        recurrent<nn::RNN>("RNN", {.input_size = 3, .hidden_size = 4}),
        recurrent<nn::RNN>("RNN/relu", {.input_size = 3,
                                        .hidden_size = 4,
                                        .num_layers = 2,
                                        .nonlinearity = nn::RNNActivation::kReLU,
                                        .bidirectional = true}),
        lstm("LSTM", {.input_size = 3, .hidden_size = 4}),
        lstm("LSTM/state", {.input_size = 3, .hidden_size = 4}),
        lstm(
            "LSTM/deep",
            {.input_size = 3, .hidden_size = 4, .num_layers = 2, .batch_first = true, .bidirectional = true}),
        lstm("LSTM/proj",
             {.input_size = 3, .hidden_size = 4, .num_layers = 2, .bias = false, .proj_size = 2}),
        lstm("LSTM/unbatched", {.input_size = 3, .hidden_size = 4}),
        lstm("LSTM/one", {.input_size = 1, .hidden_size = 1}),
        recurrent<nn::GRU>("GRU", {.input_size = 3, .hidden_size = 4}),
        recurrent<nn::GRU>(
            "GRU/deep",
            {.input_size = 3, .hidden_size = 4, .num_layers = 2, .batch_first = true, .bidirectional = true}),
        recurrent<nn::GRU>("GRU/plain", {.input_size = 3, .hidden_size = 4, .bias = false}),
        cell<nn::RNNCell>("RNNCell", {.input_size = 3, .hidden_size = 4}),
        cell<nn::RNNCell>("RNNCell/relu",
                          {.input_size = 3, .hidden_size = 4, .nonlinearity = nn::RNNActivation::kReLU}),
        lstm_cell("LSTMCell", {.input_size = 3, .hidden_size = 4}),
        lstm_cell("LSTMCell/plain", {.input_size = 3, .hidden_size = 4, .bias = false}),
        cell<nn::GRUCell>("GRUCell", {.input_size = 3, .hidden_size = 4}),
        cell<nn::GRUCell>("GRUCell/unbatched", {.input_size = 3, .hidden_size = 4, .bias = false}),
    });

}  // namespace gradus::golden
