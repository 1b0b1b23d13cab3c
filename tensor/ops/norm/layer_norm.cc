// Layer norm and RMS norm over the last `dims` dims, and their gradients: allocates the results, converts the
// operands to row-major f32 (f64 for f64), and calls the kernels, which compute. The callers
// (autograd/ops/norm/layer_norm.cc) have checked shapes, dtypes and devices. A row is the last `dims` dims. stats
// f64[rows,2] has mean and 1 / sqrt(var + eps) of each row. dx has x's dtype; dweight and dbias keep the dtype of
// the computation. weight and bias may be undefined.
#include "gradus/tensor/ops/norm/layer_norm.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::raw {
namespace {

DType compute_dtype(DType t) { return t == DType::kF64 ? t : DType::kF32; }
Tensor contiguous_in(const Tensor& t, DType type) { return t.defined() ? contiguous(to(t, type)) : t; }

Shape last_dims(const Tensor& x, int dims) {
  Shape shape;
  for (int d = x.dim() - dims; d < x.dim(); ++d) shape.push_back(x.shape()[d]);
  return shape;
}

int64_t rows_of(const Tensor& x, int dims) {
  int64_t rows = 1;
  for (int d = 0; d < x.dim() - dims; ++d) rows *= x.shape()[d];
  return rows;
}

}  // namespace

LayerNormResult layer_norm(const Tensor& x, int dims, const Tensor& weight, const Tensor& bias,
                           const LayerNormSpec& spec) {
  const DType type = compute_dtype(x.dtype());
  const Tensor y = empty(x.shape(), {type, x.device()});
  const Tensor stats = empty({rows_of(x, dims), 2}, {DType::kF64, x.device()});
  if (x.numel() > 0)
    layer_norm_kernel(y, stats, contiguous_in(x, type), contiguous_in(weight, type),
                      contiguous_in(bias, type), spec);
  return {to(y, x.dtype()), stats};
}

LayerNormGrads layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& stats,
                                   const Tensor& weight, int dims, const LayerNormSpec& spec) {
  const DType type = compute_dtype(x.dtype());
  const TensorOptions like{type, x.device()};
  const Shape shape = last_dims(x, dims);
  LayerNormGrads g{empty(x.shape(), like), empty(shape, like), empty(shape, like)};
  if (x.numel() > 0) {
    layer_norm_backward_kernel(g.dx, g.dweight, g.dbias, contiguous_in(dy, type), contiguous_in(x, type),
                               stats, contiguous_in(weight, type), spec);
  } else {
    fill_(g.dweight, 0), fill_(g.dbias, 0);
  }
  g.dx = to(g.dx, x.dtype());
  return g;
}

}  // namespace gradus::raw
