// Element-wise part of one step of an LSTM or GRU, applied to the matrix products of all gates.
// gradus/nn/layers/recurrent.h has the layers that run the steps over sequences.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// The state of an LSTM: hidden state h (the output) and cell state c.
struct LSTMState {
  Tensor h, c;
};

// Returns the next state of an LSTM. `gates` is the sum of the gates' matrix products with the input and with
// h, split along dim 1 into i, f, u, o:
//   c' = sigmoid(f) c + sigmoid(i) tanh(u),  h' = sigmoid(o) tanh(c')
// Shapes: gates [N,4H], c [N,H] -> h', c' [N,H].
// Errors: ShapeError, DTypeError, DeviceError for operands that do not match.
// Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997; Gers et al. 2000 for the gate f.
LSTMState lstm_cell(const Tensor& gates, const Tensor& c);

// Returns the next state of a GRU, from the gates' matrix products with the input (x_gates) and with h
// (h_gates), both split along dim 1 into parts r, z, n:
//   r = sigmoid(x_r + h_r),  z = sigmoid(x_z + h_z),  n = tanh(x_n + r h_n),  h' = (1 - z) n + z h
// Shapes: x_gates, h_gates [N,3H], h [N,H] -> [N,H].
// Errors: ShapeError, DTypeError, DeviceError for operands that do not match.
// Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.
Tensor gru_cell(const Tensor& x_gates, const Tensor& h_gates, const Tensor& h);

}  // namespace gradus
