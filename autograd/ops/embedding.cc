// Embedding lookup, by index_select on the flattened index. The gradient of the weight is the scatter-add of
// the rows of dy: dense, or sparse (the pairs of index and row of dy, on CPUs alone). embedding_renorm_
// limits the norms of rows in place. embedding_bag is composed of embedding and index_add or scatter_reduce.
// Arguments are checked here, index values by the kernels.
#include "gradus/autograd/ops/embedding.h"

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/sort.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
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
  const Tensor one = ones({index.numel()}, {autograd::at_least_f32(dtype), index.device()});
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

namespace {

constexpr const char* kBag = "embedding_bag";

// Errors: ValueError unless the offsets, on a CPU, begin with 0, do not decrease, and are at most n.
void check_offsets(const Tensor& offsets, int64_t n) {
  if (offsets.device().type != DeviceType::kCPU) return;
  int64_t previous = 0;
  const std::vector<int64_t> all = offsets.to_vector<int64_t>();
  if (all.empty() ? n > 0 : all[0] != 0)
    throw ValueError(kBag, "expected offsets that begin with 0, got ",
                     all.empty() ? "none" : concat(all[0]).c_str());
  for (const int64_t offset : all) {
    if (offset < previous || offset > n)
      throw ValueError(kBag, "expected offsets in ascending order of at most ", n, ", got ", offset,
                       " after ", previous);
    previous = offset;
  }
}

// Returns the bag of each entry, i64 [number of entries]; `bags` is the number of bags. Entries behind the last bag
// have the number `bags`.
Tensor bag_numbers(const Tensor& index, const Tensor& offsets, int64_t bags) {
  const TensorOptions integers{.dtype = DType::kI64, .device = index.device()};
  if (index.dim() == 2) return flat(raw::expand(raw::unsqueeze(arange(bags, integers), 1), index.shape()));
  check_offsets(offsets, index.numel());
  return searchsorted(raw::to(offsets, DType::kI64), arange(index.numel(), integers), {.right = true}) - 1;
}

}  // namespace

Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets,
                     const EmbeddingBagFuncOptions& o) {
  const OpCall call(kBag, {{"index", index}, {"weight", weight}});
  check_table(weight, index, kBag);
  if (offsets.defined()) raw::check_index(offsets, weight, kBag);
  if (index.dim() == 1 && !offsets.defined())
    throw StateError(kBag, "offsets is undefined; index of one dim needs the first entry of each bag");
  if (offsets.defined() ? index.dim() != 1 || offsets.dim() != 1 : index.dim() != 2)
    throw ShapeError(kBag, "expected index [B,n] without offsets, or [n] with offsets [B], got ",
                     describe(index), " and ", offsets.defined() ? describe(offsets) : "no offsets");
  const int64_t bags = (offsets.defined() ? offsets.size(0) - o.include_last_offset : index.size(0));
  if (bags < 0) throw ShapeError(kBag, "include_last_offset needs an offset, got ", describe(offsets));
  if (o.per_sample_weights.defined()) {
    if (o.mode != BagMode::kSum) throw ValueError(kBag, "per_sample_weights needs the mode kSum");
    if (o.per_sample_weights.shape() != index.shape())
      throw ShapeError(kBag, "expected per_sample_weights like index ", describe(index), ", got ",
                       describe(o.per_sample_weights));
  }
  if (o.mode == BagMode::kMax && (o.scale_grad_by_freq || o.sparse))
    throw ValueError(kBag, "the mode kMax takes no ", o.sparse ? "sparse" : "scale_grad_by_freq");

  // Entries that do not count belong to one bag more, which is cut off at the end.
  Tensor bag = bag_numbers(index, offsets, bags);
  Tensor rows = autograd::at_least_f32(embedding(
      flat(index), weight,
      {.padding_idx = o.padding_idx, .scale_grad_by_freq = o.scale_grad_by_freq, .sparse = o.sparse}));
  if (o.padding_idx) {
    const int64_t padding = *o.padding_idx + (*o.padding_idx < 0 ? weight.size(0) : 0);
    bag = where(eq(flat(index), padding), bags, bag);
  }
  if (o.per_sample_weights.defined()) rows = rows * reshape(o.per_sample_weights, {index.numel(), 1});
  const TensorOptions like{.dtype = rows.dtype(), .device = rows.device()};
  const Tensor none = zeros({bags + 1, weight.size(1)}, like);
  Tensor y;
  if (o.mode == BagMode::kMax)
    y = scatter_reduce(none, 0, raw::expand(raw::unsqueeze(bag, 1), rows.shape()), rows, ScatterReduce::kAmax,
                       {.include_self = false});
  else
    y = index_add(none, 0, bag, rows);
  if (o.mode == BagMode::kMean)
    y = y / unsqueeze(clamp(index_add(zeros({bags + 1}, like), 0, bag, ones({index.numel()}, like)), 1), 1);
  return to(narrow(y, 0, 0, bags), weight.dtype());
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
