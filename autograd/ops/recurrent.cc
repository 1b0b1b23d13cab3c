// The element-wise part of one time step of an LSTM or GRU, after the matrix products and biases of the
// gates. Fused kernels compute the forward and the first gradient. When an open recording follows the
// gradient's inputs, the gradient is composed of differentiable ops instead, so that it can be differentiated
// again. Both recompute the activated gates.
#include "gradus/autograd/ops/recurrent.h"

#include <vector>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/recurrent.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

// Checks that gates has shape [N, parts * H] for a state [N,H], and its dtype and device.
void check_gates(const char* op, const char* name, const Tensor& gates, int64_t parts, const Tensor& state) {
  if (state.dim() != 2) throw ShapeError(op, "expected a state [N,H], got ", describe(state));
  if (gates.shape() != Shape{state.size(0), parts * state.size(1)})
    throw ShapeError(op, "expected ", name, " [", state.size(0), ",", parts * state.size(1), "], got ",
                     describe(gates));
  check_floating(op, name, gates);
  check_same_dtype(op, "state", state, name, gates);
  autograd::check_same_device(op, "state", state, name, gates);
}

// Computes the gradients of lstm_cell by differentiable ops: {dgates [N, 4H], gradient of c [N, H]}. dh and
// dc are the gradients of the outputs h' and c'; one of them may be undefined (zeros). Gates are in the order
// i, f, u, o.
std::vector<Tensor> lstm_cell_grads_by_ops(const Tensor& dh, const Tensor& dc, const Tensor& gates,
                                           const Tensor& c) {
  const int64_t H = c.size(1);
  const std::vector<Tensor> g = split(gates, std::vector<int64_t>{H, H, H, H}, 1);
  const Tensor i = sigmoid(g[0]), f = sigmoid(g[1]), u = tanh(g[2]), o = sigmoid(g[3]);
  const Tensor t = tanh(f * c + i * u);
  Tensor d = dc, d_o = zeros_like(c);
  if (dh.defined()) {
    const Tensor through_h = dh * o * (1 - square(t));
    d = d.defined() ? d + through_h : through_h;
    d_o = dh * t * o * (1 - o);
  }
  return {cat({d * u * i * (1 - i), d * c * f * (1 - f), d * i * (1 - square(u)), d_o}, 1), d * f};
}

// Computes the gradients of gru_cell: {dx_gates [N, 3H], dh_gates [N, 3H], dh [N, H]}. dy is the gradient of
// h', dh that of h without the part through h_gates. Gates are in the order r, z, n.
std::vector<Tensor> gru_cell_grads_by_ops(const Tensor& dy, const Tensor& x_gates, const Tensor& h_gates,
                                          const Tensor& h) {
  const int64_t H = h.size(1);
  const std::vector<int64_t> sizes{H, H, H};
  const std::vector<Tensor> x = split(x_gates, sizes, 1), s = split(h_gates, sizes, 1);
  const Tensor r = sigmoid(x[0] + s[0]), z = sigmoid(x[1] + s[1]), n = tanh(x[2] + r * s[2]);
  const Tensor dn = dy * (1 - z) * (1 - square(n)), dz = dy * (h - n) * z * (1 - z),
               dr = dn * s[2] * r * (1 - r);
  return {cat({dr, dz, dn}, 1), cat({dr, dz, dn * r}, 1), dy * z};
}

}  // namespace

LSTMState lstm_cell(const Tensor& gates, const Tensor& c) {
  const OpCall call("lstm_cell", {{"gates", gates}, {"c", c}});
  if (autograd::Casting cast{"lstm_cell", gates, c}) return lstm_cell(cast(gates), cast(c));
  check_gates("lstm_cell", "gates", gates, 4, c);
  const auto [h, next] = raw::lstm_cell(gates, c);
  if (Recorder r{"lstm_cell", gates, c})
    r.record_joint(std::vector<Tensor>{h, next}, {gates, c},
                   [gates = r.save(gates), c = r.save(c)](std::vector<Tensor> dys, autograd::Needs) {
                     const Tensor g = gates.get(), s = c.get();
                     if (autograd::any_tracked(dys[0], dys[1], g, s))
                       return lstm_cell_grads_by_ops(dys[0], dys[1], g, s);
                     const auto [dgates, dc] = raw::lstm_cell_backward(dys[0], dys[1], g, s);
                     return std::vector<Tensor>{dgates, dc};
                   });
  return {h, next};
}

Tensor gru_cell(const Tensor& x_gates, const Tensor& h_gates, const Tensor& h) {
  const OpCall call("gru_cell", {{"x_gates", x_gates}, {"h_gates", h_gates}, {"h", h}});
  if (autograd::Casting cast{"gru_cell", x_gates, h_gates, h})
    return gru_cell(cast(x_gates), cast(h_gates), cast(h));
  check_gates("gru_cell", "x_gates", x_gates, 3, h);
  check_gates("gru_cell", "h_gates", h_gates, 3, h);
  const Tensor y = raw::gru_cell(x_gates, h_gates, h);
  if (Recorder r{"gru_cell", x_gates, h_gates, h})
    r.record_joint({&y, 1}, {x_gates, h_gates, h},
                   [x_gates = r.save(x_gates), h_gates = r.save(h_gates), h = r.save(h)](
                       std::vector<Tensor> dys, autograd::Needs) {
                     const Tensor x = x_gates.get(), g = h_gates.get(), s = h.get();
                     if (autograd::any_tracked(dys[0], x, g, s))
                       return gru_cell_grads_by_ops(dys[0], x, g, s);
                     const auto d = raw::gru_cell_backward(dys[0], x, g, s);
                     return std::vector<Tensor>{d.dx_gates, d.dh_gates, d.dh};
                   });
  return y;
}

}  // namespace gradus
