// Raw LSTM and GRU cells (one time step) and their gradients, in floating dtypes. The arguments are checked
// by the differentiable forms, in gradus/autograd/ops/recurrent.h.
#pragma once

#include <utility>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Returns h' and c', given the gates before activation (products and biases), [i, f, u, o] along dim 1:
//   c' = sigmoid(f) c + sigmoid(i) tanh(u), h' = sigmoid(o) tanh(c')
// Shapes: gates[N,4H], c[N,H] -> h'[N,H], c'[N,H].
std::pair<Tensor, Tensor> lstm_cell(const Tensor& gates, const Tensor& c);
// Returns the gradients of gates and c for the gradients dh of h' and dc of c', one of which may be undefined. The
// activated gates are recomputed, which is cheaper than saving five more tensors per time step.
std::pair<Tensor, Tensor> lstm_cell_backward(const Tensor& dh, const Tensor& dc, const Tensor& gates,
                                             const Tensor& c);

// Returns h', given the gates' products and biases for the input (x_gates) and state (h_gates), [r, z, n]
// along dim 1:
//   r = sigmoid(x_r + h_r), z = sigmoid(x_z + h_z), n = tanh(x_n + r h_n), h' = (1 - z) n + z h
// Shapes: x_gates[N,3H], h_gates[N,3H], h[N,H] -> h'[N,H].
Tensor gru_cell(const Tensor& x_gates, const Tensor& h_gates, const Tensor& h);
// The gradients for the gradient dy of h'. dh is that of h, without the part through h_gates.
struct GruCellGrads {
  Tensor dx_gates, dh_gates, dh;
};
GruCellGrads gru_cell_backward(const Tensor& dy, const Tensor& x_gates, const Tensor& h_gates,
                               const Tensor& h);

// Kernels: f32 or f64, all row-major, none empty; dh and dc of the backward kernel are defined.
extern KernelSlot<void(const Tensor& h, const Tensor& c_next, const Tensor& gates, const Tensor& c)>
    lstm_cell_kernel;
extern KernelSlot<void(const Tensor& dgates, const Tensor& dc, const Tensor& dh, const Tensor& dc_next,
                       const Tensor& gates, const Tensor& c)>
    lstm_cell_backward_kernel;
extern KernelSlot<void(const Tensor& y, const Tensor& x_gates, const Tensor& h_gates, const Tensor& h)>
    gru_cell_kernel;
extern KernelSlot<void(const Tensor& dx_gates, const Tensor& dh_gates, const Tensor& dh, const Tensor& dy,
                       const Tensor& x_gates, const Tensor& h_gates, const Tensor& h)>
    gru_cell_backward_kernel;

}  // namespace gradus::raw
