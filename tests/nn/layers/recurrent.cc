// Rows of the layer table (layer_table.h) for recurrent layers and cells; recurrent.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

using nn::LSTM;

// Initial states that a row lacks are undefined, which means zeros.
Tensor input(X x, size_t i) { return i < x.size() ? x[i] : Tensor(); }

template <class L> Row recurrent(std::string name, typename L::Options o, Checks checks = {}) {
  const auto call = [](L& layer, X x) {
    const nn::RNNResult r = layer(x[0], input(x, 1));
    return std::vector<Tensor>{r.output, r.h};
  };
  return row<L>(std::move(name), o, call, std::move(checks));
}

Row lstm(std::string name, nn::LSTMOptions o, Checks checks = {}) {
  const auto call = [](LSTM& layer, X x) {
    const auto [y, state] = layer(x[0], {input(x, 1), input(x, 2)});
    return std::vector<Tensor>{y, state.h, state.c};
  };
  return row<LSTM>(std::move(name), o, call, std::move(checks));
}

template <class L> Row cell(std::string name, typename L::Options o, Checks checks = {}) {
  const auto call = [](L& layer, X x) { return layer(x[0], input(x, 1)); };
  return row<L>(std::move(name), o, call, std::move(checks));
}

Row lstm_cell(std::string name, nn::RecurrentCellOptions o, Checks checks = {}) {
  const auto call = [](nn::LSTMCell& layer, X x) {
    const auto [h, c] = layer(x[0], {input(x, 1), input(x, 2)});
    return std::vector<Tensor>{h, c};
  };
  return row<nn::LSTMCell>(std::move(name), o, call, std::move(checks));
}

// For errors.
LSTM batches_first() { return LSTM({.input_size = 3, .hidden_size = 4, .batch_first = true}); }

std::vector<Row> table() {
  return {
      recurrent<nn::RNN>(
          "RNN", {.input_size = 3, .hidden_size = 4},
          {.inputs = {{5, kRows, 3}},
           .roundings = 64,
           .errors = {LAYER_ERROR(ValueError, nn::RNN({.input_size = 3, .hidden_size = 4, .dropout = 2}),
                                  "[RNN]", "dropout", "2")}}),
      recurrent<nn::RNN>(
          "RNN/relu",
          {.input_size = 3,
           .hidden_size = 4,
           .num_layers = 2,
           .nonlinearity = nn::RNNActivation::kReLU,
           .bidirectional = true},
          {.prints =
               "RNN(input_size=3, hidden_size=4, num_layers=2, nonlinearity=kReLU, bidirectional=true)"}),
      lstm("LSTM", {.input_size = 3, .hidden_size = 4},
           {.prints = "LSTM(input_size=3, hidden_size=4)",
            .errors =
                {LAYER_ERROR(ValueError, LSTM({.input_size = 0, .hidden_size = 4}), "[LSTM]", ">= 1", "0, 4"),
                 LAYER_ERROR(ValueError, LSTM({.input_size = 3, .hidden_size = 4, .proj_size = 4}), "[LSTM]",
                             "proj_size", "4"),
                 LAYER_ERROR(ShapeError, batches_first()(ones({2, 5, 4})), "[LSTM]", "[N,T,3]", "f32[2,5,4]"),
                 LAYER_ERROR(ShapeError, batches_first()(ones({2, 0, 3})), "[LSTM]", "T >= 1", "f32[2,0,3]"),
                 LAYER_ERROR(ShapeError, batches_first()(ones({3})), "[LSTM]", "f32[3]"),
                 LAYER_ERROR(ShapeError, batches_first()(ones({2, 5, 3}), {ones({1, 3, 4}), ones({1, 2, 4})}),
                             "[LSTM]", "h [1,2,4]", "f32[1,3,4]"),
                 LAYER_ERROR(ShapeError, batches_first()(ones({2, 5, 3}), {ones({1, 2, 4}), ones({1, 2, 5})}),
                             "[LSTM]", "c [1,2,4]", "f32[1,2,5]")}}),
      lstm("LSTM/state", {.input_size = 3, .hidden_size = 4},
           {.inputs = {{5, kRows, 3}, {1, kRows, 4}, {1, kRows, 4}}, .roundings = 64}),
      lstm("LSTM/deep",
           {.input_size = 3, .hidden_size = 4, .num_layers = 2, .batch_first = true, .bidirectional = true},
           {.inputs = {{kRows, 5, 3}},
            .roundings = 64,
            .prints =
                "LSTM(input_size=3, hidden_size=4, num_layers=2, batch_first=true, bidirectional=true)"}),
      lstm("LSTM/proj", {.input_size = 3, .hidden_size = 4, .num_layers = 2, .bias = false, .proj_size = 2},
           {.inputs = {{5, kRows, 3}, {2, kRows, 2}, {2, kRows, 4}},
            .roundings = 64,
            .prints = "LSTM(input_size=3, hidden_size=4, num_layers=2, bias=false, proj_size=2)"}),
      lstm("LSTM/unbatched", {.input_size = 3, .hidden_size = 4}),
      lstm("LSTM/one", {.input_size = 1, .hidden_size = 1}),
      lstm("LSTM/small", {.input_size = 2, .hidden_size = 2, .num_layers = 2},
           {.inputs = {{3, kRows, 2}}, .roundings = 64, .golden = false, .second_order = true}),
      recurrent<nn::GRU>("GRU/small", {.input_size = 2, .hidden_size = 2, .bidirectional = true},
                         {.inputs = {{2, kRows, 2}}, .roundings = 64, .golden = false, .second_order = true}),
      recurrent<nn::GRU>(
          "GRU", {.input_size = 3, .hidden_size = 4},
          {.inputs = {{5, kRows, 3}, {1, kRows, 4}},
           .roundings = 64,
           .errors = {LAYER_ERROR(ValueError, nn::GRU({.input_size = 3, .hidden_size = 4, .num_layers = 0}),
                                  "[GRU]", "0")}}),
      recurrent<nn::GRU>(
          "GRU/deep",
          {.input_size = 3, .hidden_size = 4, .num_layers = 2, .batch_first = true, .bidirectional = true},
          {.inputs = {{kRows, 5, 3}}, .roundings = 64}),
      recurrent<nn::GRU>("GRU/plain", {.input_size = 3, .hidden_size = 4, .bias = false}),
      cell<nn::RNNCell>("RNNCell", {.input_size = 3, .hidden_size = 4},
                        {.inputs = {{kRows, 3}}, .roundings = 16}),
      cell<nn::RNNCell>("RNNCell/relu",
                        {.input_size = 3, .hidden_size = 4, .nonlinearity = nn::RNNActivation::kReLU}),
      lstm_cell("LSTMCell", {.input_size = 3, .hidden_size = 4},
                {.inputs = {{kRows, 3}, {kRows, 4}, {kRows, 4}},
                 .roundings = 16,
                 .errors = {LAYER_ERROR(ValueError, nn::LSTMCell({.input_size = 3, .hidden_size = 0}),
                                        "[LSTMCell]", "3, 0")}}),
      lstm_cell("LSTMCell/plain", {.input_size = 3, .hidden_size = 4, .bias = false},
                {.inputs = {{kRows, 3}}, .roundings = 16}),
      cell<nn::GRUCell>(
          "GRUCell", {.input_size = 3, .hidden_size = 4},
          {.inputs = {{kRows, 3}},
           .roundings = 16,
           .errors = {LAYER_ERROR(ShapeError, nn::GRUCell({.input_size = 3, .hidden_size = 4})(ones({2, 4})),
                                  "[GRUCell]", "[N,3]", "f32[2,4]"),
                      LAYER_ERROR(
                          ShapeError,
                          nn::GRUCell({.input_size = 3, .hidden_size = 4})(ones({2, 3}), ones({2, 3})),
                          "[GRUCell]", "[2,4]", "f32[2,3]")}}),
      cell<nn::GRUCell>("GRUCell/unbatched", {.input_size = 3, .hidden_size = 4, .bias = false},
                        {.prints = "GRUCell(input_size=3, hidden_size=4, bias=false)"}),
  };
}

const bool added = add_rows("recurrent", table());

}  // namespace

}  // namespace gradus::layers
