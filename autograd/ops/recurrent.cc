#include "gradus/autograd/ops/recurrent.h"

#include <vector>

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/ops/join.h"
#include "gradus/autograd/ops/view.h"

namespace gradus {
namespace {

// Checks `gates` [N,parts * H] against a state [N,H].
void check_gates(const char* op, const char* name, const Tensor& gates, int64_t parts, const Tensor& state) {
  if (state.dim() != 2) throw ShapeError(op, "expected a state [N,H], given ", describe(state));
  if (gates.shape() != Shape{state.size(0), parts * state.size(1)})
    throw ShapeError(op, "expected ", name, " [", state.size(0), ",", parts * state.size(1), "], given ",
                     describe(gates));
  if (!is_floating(state.dtype()) || gates.dtype() != state.dtype())
    throw DTypeError(op, "expected ", name, " and state of one floating-point dtype, given ", describe(gates),
                     " and ", describe(state));
  if (gates.device() != state.device())
    throw DeviceError(op, "expected all on one device, given ", describe(gates), " and ", describe(state));
}

}  // namespace

LSTMState lstm_cell(const Tensor& gates, const Tensor& c) {
  check_gates("lstm_cell", "gates", gates, 4, c);
  const int64_t H = c.size(1);
  const std::vector<Tensor> g = split(gates, std::vector<int64_t>{H, H, H, H}, 1);
  const Tensor next = sigmoid(g[1]) * c + sigmoid(g[0]) * tanh(g[2]);
  return {sigmoid(g[3]) * tanh(next), next};
}

Tensor gru_cell(const Tensor& x_gates, const Tensor& h_gates, const Tensor& h) {
  check_gates("gru_cell", "x_gates", x_gates, 3, h);
  check_gates("gru_cell", "h_gates", h_gates, 3, h);
  const int64_t H = h.size(1);
  const std::vector<int64_t> sizes{H, H, H};
  const std::vector<Tensor> x = split(x_gates, sizes, 1), s = split(h_gates, sizes, 1);
  const Tensor r = sigmoid(x[0] + s[0]), z = sigmoid(x[1] + s[1]), n = tanh(x[2] + r * s[2]);
  return n + z * (h - n);
}

}  // namespace gradus
