// Embedding lookup, by index_select on the flattened index. The gradient of the weight is the scatter-add of
// the rows of dy: dense, or sparse (the pairs of index and row of dy, on CPUs alone). embedding_renorm_
// limits the norms of rows in place. Arguments are checked here, index values by the kernels.
#include "gradus/autograd/ops/embedding.h"

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"

namespace gradus {
namespace {

Tensor flat(const Tensor& index) { return raw::reshape(index, {index.numel()}); }

void check_table(const Tensor& weight, const Tensor& index, const char* op) {
  if (weight.dim() != 2) throw ShapeError(op, "expected a matrix as weight, got ", describe(weight));
  raw::check_index(index, weight, op);
}

// Returns 1 / (number of occurrences of index[i] in `index`) for index [...] with values below `rows`. The
// result has shape [..., 1], to scale rows, and dtype f64 if `dtype` is f64, else f32.
Tensor inverse_frequency(const Tensor& index, int64_t rows, DType dtype) {
  const Tensor one =
      empty({index.numel()}, {.dtype = dtype == DType::kF64 ? dtype : DType::kF32, .device = index.device()});
  raw::fill_(one, 1);
  const Tensor counts = raw::index_select_backward(one, {rows}, 0, flat(index), -1, "embedding");
  Shape s = index.shape();
  s.push_back(1);
  return raw::reshape(
      raw::unary<functors::Reciprocal>(raw::index_select(counts, 0, flat(index), "embedding")), s);
}

}  // namespace

Tensor embedding(const Tensor& index, const Tensor& weight, EmbeddingFuncOptions options) {
  const OpCall call("embedding", {{"index", index}, {"weight", weight}});
  check_table(weight, index, "embedding");
  const int64_t rows = weight.size(0);
  int64_t padding = options.padding_idx.value_or(-1);  // -1: every row gets a gradient
  if (options.padding_idx) {
    if (padding < -rows || padding >= rows)
      throw IndexError("embedding", "padding_idx ", padding, " is out of range for weight ",
                       describe(weight));
    if (padding < 0) padding += rows;
  }
  Shape s = index.shape();
  s.push_back(weight.size(1));
  Tensor y = raw::reshape(raw::index_select(weight, 0, flat(index), "embedding"), s);
  if (Recorder r{"embedding", weight})
    r.record(y, wrt(weight, [index = r.save(index), rows, padding, scale = options.scale_grad_by_freq,
                             sparse = options.sparse](Tensor dy) {
               const Tensor at = index.get();
               if (scale) dy = dy * inverse_frequency(at, rows, dy.dtype());
               if (!sparse || dy.device().type != DeviceType::kCPU || autograd::is_tracked(dy))
                 return embedding_backward(dy, at, rows, padding);
               const int64_t width = dy.shape().back();
               return autograd::make_sparse(flat(at), raw::reshape(dy, {at.numel(), width}), {rows, width},
                                            padding);
             }));
  return y;
}

Tensor embedding_backward(const Tensor& dy, const Tensor& index, int64_t rows, int64_t skip) {
  const OpCall call("embedding_backward", {{"dy", dy}, {"index", index}});
  constexpr const char* kOp = "embedding_backward";
  raw::check_index(index, dy, kOp);
  Shape expected = index.shape();
  expected.push_back(dy.dim() > 0 ? dy.shape().back() : 0);
  if (dy.shape() != expected)
    throw ShapeError(kOp, "expected a row per index ", describe(index), ", got dy ", describe(dy));
  const int64_t width = expected.back();
  Tensor dw = raw::index_select_backward(raw::reshape(dy, {index.numel(), width}), {rows, width}, 0,
                                         flat(index), skip, kOp);
  if (Recorder r{kOp, dy})
    r.record(dw, wrt(dy, [index = r.save(index), skip](const Tensor& g) {
               const Tensor at = index.get(), y = embedding(at, g);
               // The rows at index `skip` do not contribute to dw, so their gradient is 0.
               return skip < 0 ? y : where(raw::unsqueeze(raw::eq(at, double(skip)), -1), 0, y);
             }));
  return dw;
}

void embedding_renorm_(const Tensor& weight, const Tensor& index, double max_norm, double p) {
  const OpCall call("embedding_renorm_", {{"weight", weight}, {"index", index}});
  constexpr const char* kOp = "embedding_renorm_";
  check_table(weight, index, kOp);
  if (!(max_norm >= 0)) throw ValueError(kOp, "expected a norm of at least 0, got ", max_norm);
  const Tensor at = flat(index), rows = raw::index_select(weight, 0, at, kOp);
  const Tensor norm = raw::norm(rows, {1}, p, true);
  const Tensor exceeds = raw::gt(norm, max_norm);
  // As in PyTorch, a small term prevents a division by 0.
  const Tensor factor = raw::div(max_norm, raw::add(norm, 1e-7));
  const Tensor scaled = raw::where(exceeds, raw::to(raw::mul(rows, factor), weight.dtype()), rows);
  raw::index_copy_(weight, 0, at, scaled, kOp);
}

}  // namespace gradus
