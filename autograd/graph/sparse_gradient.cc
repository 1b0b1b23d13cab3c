// Sparse gradients of embeddings (the nonzero rows of a [V, ...] gradient), as meta tensors: the meta tensor
// has the shape and dtype of the full gradient, and its storage owns the rows' indices [n] and values [n,
// ...]. make_sparse sums rows of equal index by sorting the indices on the host. The rows stay on the device
// that computed them.
#include "gradus/autograd/graph/sparse_gradient.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gradus/tensor/ops/concat.h"
#include "gradus/tensor/ops/index.h"

namespace gradus::autograd {
namespace {

constexpr const char* kOp = "sparse_gradient";

// The rows of a sparse gradient, owned by the storage of its meta tensor. A view of the meta tensor shares
// the storage and is no sparse gradient; `owner` tells them apart.
struct StoredRows final : Counted {
  StoredRows(SparseRows rows, const TensorImpl* owner) : rows(std::move(rows)), owner(owner) {}
  const SparseRows rows;
  const TensorImpl* const owner;
};

// Returns the rows of a sparse gradient; null for any other tensor, and for an undefined one.
const StoredRows* stored_in(const Tensor& grad) {
  if (!grad.defined() || grad.device().type != DeviceType::kMeta) return nullptr;
  const auto* stored = dynamic_cast<const StoredRows*>(grad.storage()->kernel_data.get());
  return stored && stored->owner == grad.ref().get() ? stored : nullptr;
}

// Makes the sparse gradient of this shape; the indices must be ascending and unique.
Tensor sparse(SparseRows rows, const Shape& shape) {
  const Tensor grad = empty(shape, {rows.values.dtype(), Device{DeviceType::kMeta}});
  grad.storage()->kernel_data = make_ref<StoredRows>(std::move(rows), grad.ref().get());
  return grad;
}

}  // namespace

bool is_sparse(const Tensor& grad) { return stored_in(grad) != nullptr; }

const SparseRows& sparse_rows(const Tensor& grad) {
  if (const StoredRows* stored = stored_in(grad)) return stored->rows;
  throw ValueError("sparse_rows", "expected a sparse gradient, got ", describe(grad));
}

Tensor to_dense(const Tensor& grad) {
  const StoredRows* const stored = stored_in(grad);
  if (!stored) return grad;
  return raw::index_select_backward(stored->rows.values, grad.shape(), 0, stored->rows.indices, -1, kOp);
}

const Tensor& elements_of(const Tensor& grad) {
  const StoredRows* const stored = stored_in(grad);
  return stored ? stored->rows.values : grad;
}

Tensor make_sparse(const Tensor& index, const Tensor& rows, const Shape& shape, int64_t skip) {
  // Pairs (index[i], i), sorted, so that rows of equal index are added in the order of i.
  std::vector<std::pair<int64_t, int64_t>> sorted;
  for (const int64_t i : index.to_vector<int64_t>()) sorted.emplace_back(i, int64_t(sorted.size()));
  std::sort(sorted.begin(), sorted.end());
  // indices: the distinct indices, ascending. targets[i]: the position of index[i] in `indices`.
  std::vector<int64_t> indices, targets(sorted.size(), -1);
  for (const auto& [i, position] : sorted) {
    if (i == skip) continue;
    if (indices.empty() || indices.back() != i) indices.push_back(i);
    targets[static_cast<size_t>(position)] = int64_t(indices.size()) - 1;
  }
  // Skipped rows get the index `count`, which index_select_backward ignores; that extra row is cut off below.
  const auto count = int64_t(indices.size());
  std::replace(targets.begin(), targets.end(), int64_t{-1}, count);
  Shape sums = rows.shape();
  sums[0] = count + 1;
  const Tensor targets_on_device = tensor(targets, {int64_t(targets.size())}, index.device());
  const Tensor summed = raw::index_select_backward(rows, sums, 0, targets_on_device, count, kOp);
  sums[0] = count;
  return sparse(
      {tensor(indices, {count}, index.device()), view_as_strided(summed, sums, summed.strides(), 0)}, shape);
}

Tensor add_sparse(const Tensor& a, const Tensor& b) {
  const SparseRows &x = sparse_rows(a), &y = sparse_rows(b);
  return make_sparse(raw::cat({x.indices, y.indices}, 0), raw::cat({x.values, y.values}, 0), a.shape());
}

}  // namespace gradus::autograd
