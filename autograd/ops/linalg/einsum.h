// einsum: sums of products in Einstein notation, differentiable to any order.
#pragma once

#include <string_view>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Sums products over labeled dims, as torch.einsum: einsum("bij,bjk->bik", {a, b}) multiplies batches of
// matrices. Each operand has one letter per dim. "..." stands for any number of dims, which broadcast.
// Letters that are not in the result are summed over. A letter that occurs twice in an operand selects the
// diagonal. Dims of size 1 broadcast. Without "->" the result has the dims of "..." and then, in alphabetical
// order (capitals first), the letters that occur once. Operands are multiplied from left to right, by matrix
// products where dims are summed over.
// Errors: the messages quote the equation. ValueError for a malformed equation (spaces are ignored), another
// number of operands, or a letter of the result that is missing or repeated; ShapeError for another number of
// dims, different sizes of one letter, or an intermediate product of more than kMaxDims (8) dims; DTypeError
// unless all are of one floating dtype; DeviceError.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

}  // namespace gradus
