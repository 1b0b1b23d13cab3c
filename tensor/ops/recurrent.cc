// Checks, dtype conversion, and calls of the LSTM and GRU kernels.
#include "gradus/tensor/ops/recurrent.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::raw {
namespace {

// Returns the dtype in which the kernels compute: 16-bit floats as f32.
DType compute_dtype(DType t) { return t == DType::kF64 ? t : DType::kF32; }
Tensor contiguous_in(const Tensor& t, DType type) { return contiguous(to(t, type)); }
Tensor prepared_or_zeros(const Tensor& t, const Shape& shape, TensorOptions like) {
  if (t.defined()) return contiguous_in(t, like.dtype);
  const Tensor zeros = empty(shape, like);
  fill_(zeros, 0);
  return zeros;
}

}  // namespace

std::pair<Tensor, Tensor> lstm_cell(const Tensor& gates, const Tensor& c) {
  const DType type = compute_dtype(c.dtype());
  const TensorOptions like{type, c.device()};
  const Tensor h = empty(c.shape(), like), next = empty(c.shape(), like);
  if (c.numel() > 0) lstm_cell_kernel(h, next, contiguous_in(gates, type), contiguous_in(c, type));
  return {to(h, c.dtype()), to(next, c.dtype())};
}

std::pair<Tensor, Tensor> lstm_cell_backward(const Tensor& dh, const Tensor& dc, const Tensor& gates,
                                             const Tensor& c) {
  const DType type = compute_dtype(c.dtype());
  const TensorOptions like{type, c.device()};
  const Tensor dgates = empty(gates.shape(), like), dc_before = empty(c.shape(), like);
  if (c.numel() > 0)
    lstm_cell_backward_kernel(dgates, dc_before, prepared_or_zeros(dh, c.shape(), like),
                              prepared_or_zeros(dc, c.shape(), like), contiguous_in(gates, type),
                              contiguous_in(c, type));
  return {to(dgates, gates.dtype()), to(dc_before, c.dtype())};
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
