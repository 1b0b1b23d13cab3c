// Steps of recurrent networks: what follows the matrix products, for all gates at once. The layers that run
// them over sequences are in gradus/nn/layers/recurrent.h.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// The state of an LSTM: what it gives out and what it keeps.
struct LSTMState {
  Tensor h, c;
};

// Updates an LSTM's cell by the sums of its input's and its state's products:
//   [i f g o] = gates,  c' = sigmoid(f) c + sigmoid(i) tanh(g),  h' = sigmoid(o) tanh(c').
// Shapes: gates [N,4H], c [N,H] -> h', c' [N,H].
// Errors: ShapeError, DTypeError, DeviceError for what does not fit.
// Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997; Gers et al. 2000 for the gate f.
LSTMState lstm_cell(const Tensor& gates, const Tensor& c);

// Updates a gated recurrent unit by its input's products and its state's:
//   r = sigmoid(x_r + h_r),  z = sigmoid(x_z + h_z),  n = tanh(x_n + r h_n),  h' = n + z (h - n)
// with [x_r x_z x_n] = x_gates and [h_r h_z h_n] = h_gates.
// Shapes: x_gates, h_gates [N,3H], h [N,H] -> [N,H].
// Errors: ShapeError, DTypeError, DeviceError for what does not fit.
// Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.
Tensor gru_cell(const Tensor& x_gates, const Tensor& h_gates, const Tensor& h);

}  // namespace gradus
