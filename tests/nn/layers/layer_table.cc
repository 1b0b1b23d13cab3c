// The table's storage, and the deterministic values that its tests use.
#include "gradus/tests/nn/layers/layer_table.h"

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/values.h"

namespace gradus::layers {
namespace {

std::vector<Row>& rows() {
  static std::vector<Row> all;
  return all;
}

}  // namespace

bool add_rows(const std::string& family, std::vector<Row> more) {
  for (Row& row : more) {
    row.family = family;
    rows().push_back(std::move(row));
  }
  return true;
}
const std::vector<Row>& all_rows() { return rows(); }

Tensor pattern(const Shape& shape, uint64_t seed) {
  return raw::to(raw::to(raw::to(random_tensor(shape, DType::kF64, seed) * 2.0, DType::kF16), DType::kBF16),
                 DType::kF64);
}
Tensor like(const Tensor& values, const Tensor& x) { return raw::to(raw::to(values, x.dtype()), x.device()); }
Tensor signs(const Tensor& x, const Shape& shape) {
  const Tensor p = pattern(shape, 23);
  return like(where(gt(p, 0.0), ones_like(p), full_like(p, -1)), x);
}

}  // namespace gradus::layers
