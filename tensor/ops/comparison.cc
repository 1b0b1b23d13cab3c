// Raw where, comparisons and logical ops: checks, and calls of the functors' slots (elementwise.h).
#include "gradus/tensor/ops/comparison.h"

#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {

using namespace functors;  // NOLINT

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_bool("where", "condition", condition);
  Tensor y = empty_result("where", result_dtype(a, b), {&a, &b, &condition});
  where_kernel(y, condition, a, b);
  return y;
}

Tensor eq(const Tensor& a, const Tensor& b) { return binary<Eq>(a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return binary<Ne>(a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return binary<Lt>(a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return binary<Le>(a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return binary<Gt>(a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return binary<Ge>(a, b); }
Tensor logical_and(const Tensor& a, const Tensor& b) { return binary<LogicalAnd>(a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return binary<LogicalOr>(a, b); }

}  // namespace gradus::raw
