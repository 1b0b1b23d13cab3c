// Sums of products by equation, differentiable to any order.
#pragma once

#include <string_view>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Sums products over labeled dims, in Einstein's notation. einsum("bij,bjk->bik", {a, b}) multiplies batches
// of matrices. Each operand has one letter per dim. "..." stands for leading, middle or trailing dims that
// broadcast together. Letters that the result does not name are summed over. A letter that an operand has
// twice takes its diagonal. A size of 1 broadcasts. Without "->" the result has the dims of "..." and then,
// in alphabetical order (capitals first), the letters that occur once. Operands are multiplied from left to
// right, by matrix products where dims are summed over.
// Errors: the messages quote the equation. ValueError for a malformed equation, another number of operands,
// or a letter of the result that is missing or repeated; ShapeError for another number of dims, or different
// sizes of one letter; DTypeError unless all are of one floating dtype; DeviceError.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

}  // namespace gradus
