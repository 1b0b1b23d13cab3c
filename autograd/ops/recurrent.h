// The element-wise part of a recurrent network's step, for all gates at once; it follows the matrix products.
// gradus/nn/layers/recurrent.h has the layers that run these steps over sequences.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// The state of an LSTM: its output and its cell.
struct LSTMState {
  Tensor h, c;
};

// Updates an LSTM's state. `gates` is the sum of the gates' products with the input and with the state:
// Shapes: gates [N,4H], c [N,H] -> h', c' [N,H].
// Errors: ShapeError, DTypeError, DeviceError for what does not fit.
// Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997; Gers et al. 2000 for the gate f.
LSTMState lstm_cell(const Tensor& gates, const Tensor& c);

// Updates a gated recurrent unit's state from the gates' products with the input and with the state:
// Shapes: x_gates, h_gates [N,3H], h [N,H] -> [N,H].
// Errors: ShapeError, DTypeError, DeviceError for what does not fit.
// Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014.
Tensor gru_cell(const Tensor& x_gates, const Tensor& h_gates, const Tensor& h);

}  // namespace gradus
