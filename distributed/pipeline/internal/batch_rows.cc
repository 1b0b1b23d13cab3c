// Implementation of batch_rows.h.
#include "gradus/distributed/pipeline/internal/batch_rows.h"

#include <algorithm>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::dist::internal {

constexpr auto kOp = "Pipeline";

int64_t rows_of(const std::vector<Tensor>& inputs, const std::vector<Tensor>& targets) {
  int64_t rows = -1;
  for (const auto* list : {&inputs, &targets})
    for (const Tensor& x : *list) {
      if (!x.defined()) continue;
      if (x.dim() == 0) throw ShapeError(kOp, "a batch has rows, got ", describe(x));
      if (rows < 0) rows = x.size(0);
      if (x.size(0) != rows)
        throw ShapeError(kOp, "expected as many rows in all tensors of a batch, got ", rows, " and ",
                         describe(x));
    }
  if (rows < 1)
    throw ShapeError(kOp, "expected a batch of at least one row, got ", std::max<int64_t>(rows, 0));
  return rows;
}

std::vector<Tensor> slice_rows(const std::vector<Tensor>& tensors, int64_t begin, int64_t end) {
  std::vector<Tensor> views;
  for (const Tensor& x : tensors) views.push_back(x.defined() ? narrow(x, 0, begin, end - begin) : x);
  return views;
}

std::vector<Tensor> on_current_device(std::vector<Tensor> tensors) {
  for (Tensor& x : tensors)
    if (x.defined()) x = to(x, Context::current().device);
  return tensors;
}

}  // namespace gradus::dist::internal
