// Sums of products by equation, differentiable to any order.
#pragma once

#include <string_view>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Sums products over labeled dims, in Einstein's notation: einsum("bij,bjk->bik", {a, b}) multiplies batches
// of matrices. Each operand has a letter per dim; "..." stands for leading, middle or trailing dims that
// broadcast together. A letter that the result does not name is summed over; one that an operand has twice
// takes its diagonal; a size of 1 broadcasts. Without "->" the result has the dims of "..." and then, in
// alphabetical order (capitals first), the letters that occur once. Operands are multiplied from left to
// right, by matrix products where dims are summed over. Errors, with the equation: ValueError for an equation
// that is no such thing, another number of operands, or a letter of the result that is missing or repeated;
// ShapeError for another number of dims, or different sizes of one letter; DTypeError unless all are of one
// floating dtype; DeviceError.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

}  // namespace gradus
