// LSTM and GRU cells: make operands row-major, convert 16-bit floats to f32 for the kernels (results are
// rounded once), and call the kernels unless the batch is empty. Callers have checked the arguments.
#include "gradus/tensor/ops/recurrent.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::raw {
namespace {

DType compute_dtype(DType t) { return t == DType::kF64 ? t : DType::kF32; }
Tensor contiguous_in(const Tensor& t, DType type) { return contiguous(to(t, type)); }
Tensor contiguous_or_zeros(const Tensor& t, const Shape& shape, TensorOptions like) {
  if (t.defined()) return contiguous_in(t, like.dtype);
  const Tensor zeros = empty(shape, like);
  fill_(zeros, 0);
  return zeros;
}

}  // namespace

std::pair<Tensor, Tensor> lstm_cell(const Tensor& gates, const Tensor& c) {
  const DType type = compute_dtype(c.dtype());
  const TensorOptions like{type, c.device()};
  const Tensor h = empty(c.shape(), like), c_next = empty(c.shape(), like);
  if (c.numel() > 0) lstm_cell_kernel(h, c_next, contiguous_in(gates, type), contiguous_in(c, type));
  return {to(h, c.dtype()), to(c_next, c.dtype())};
}

std::pair<Tensor, Tensor> lstm_cell_backward(const Tensor& dh, const Tensor& dc, const Tensor& gates,
                                             const Tensor& c) {
  const DType type = compute_dtype(c.dtype());
  const TensorOptions like{type, c.device()};
  const Tensor dgates = empty(gates.shape(), like), dc_in = empty(c.shape(), like);
  if (c.numel() > 0)
    lstm_cell_backward_kernel(dgates, dc_in, contiguous_or_zeros(dh, c.shape(), like),
                              contiguous_or_zeros(dc, c.shape(), like), contiguous_in(gates, type),
                              contiguous_in(c, type));
  return {to(dgates, gates.dtype()), to(dc_in, c.dtype())};
}

Tensor gru_cell(const Tensor& x_gates, const Tensor& h_gates, const Tensor& h) {
  const DType type = compute_dtype(h.dtype());
  const Tensor y = empty(h.shape(), {type, h.device()});
  if (h.numel() > 0)
    gru_cell_kernel(y, contiguous_in(x_gates, type), contiguous_in(h_gates, type), contiguous_in(h, type));
  return to(y, h.dtype());
}

GruCellGrads gru_cell_backward(const Tensor& dy, const Tensor& x_gates, const Tensor& h_gates,
                               const Tensor& h) {
  const DType type = compute_dtype(h.dtype());
  const TensorOptions like{type, h.device()};
  const GruCellGrads g{empty(x_gates.shape(), like), empty(x_gates.shape(), like), empty(h.shape(), like)};
  if (h.numel() > 0)
    gru_cell_backward_kernel(g.dx_gates, g.dh_gates, g.dh, contiguous_in(dy, type),
                             contiguous_in(x_gates, type), contiguous_in(h_gates, type),
                             contiguous_in(h, type));
  return {to(g.dx_gates, h.dtype()), to(g.dh_gates, h.dtype()), to(g.dh, h.dtype())};
}

}  // namespace gradus::raw
