// Matrix products and einsum against PyTorch's values (inputs: linalg.py; tolerances: golden_ops.h).
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

Tensor product(X x) { return matmul(x[0], x[1]); }
// `shapes` is only a part of the case's name.
GoldenOp sums(const std::string& equation, const std::string& shapes) {
  return {"einsum/" + equation + " " + shapes, [=](X x) { return einsum(equation, x); }};
}

}  // namespace

static const bool added = add_golden_ops(
    "linalg",
    {
        {"matmul/matrices", product},
        {"matmul/vectors", product},
        {"matmul/matrix_vector", product},
        {"matmul/vector_matrix", product},
        {"matmul/batches", product},
        {"matmul/broadcast", product},
        {"matmul/batch_vector", product},
        {"matmul/matrix_batch", product},
        {"matmul/one", product},
        {"matmul/empty", product},
        {"matmul/no_terms", product},
        {"matmul/large", product},
        {"linear/plain", [](X x) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); }},
        {"linear/no_bias", [](X x) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); }},
        {"linear/rows", [](X x) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); }},
        {"linear/vector", [](X x) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); }},
        {"linear/empty", [](X x) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); }},
        {"mm", [](X x) { return mm(x[0], x[1]); }},
        {"mm/one", [](X x) { return mm(x[0], x[1]); }},
        {"bmm", [](X x) { return bmm(x[0], x[1]); }},
        {"bmm/empty", [](X x) { return bmm(x[0], x[1]); }},
        {"mv", [](X x) { return mv(x[0], x[1]); }},
        {"dot", [](X x) { return dot(x[0], x[1]); }},
        {"dot/empty", [](X x) { return dot(x[0], x[1]); }},
        {"inner", [](X x) { return inner(x[0], x[1]); }},
        {"inner/scalar", [](X x) { return inner(x[0], x[1]); }},
        {"outer", [](X x) { return outer(x[0], x[1]); }},
        {"addmm/matrix", [](X x) { return addmm(x[0], x[1], x[2]); }},
        {"addmm/matrix_weighted", [](X x) { return addmm(x[0], x[1], x[2], {.beta = 0.5, .alpha = -2}); }},
        {"addmm/row", [](X x) { return addmm(x[0], x[1], x[2]); }},
        {"addmm/row_weighted", [](X x) { return addmm(x[0], x[1], x[2], {.beta = 0.5, .alpha = -2}); }},
        {"addmm/column", [](X x) { return addmm(x[0], x[1], x[2]); }},
        {"addmm/column_weighted", [](X x) { return addmm(x[0], x[1], x[2], {.beta = 0.5, .alpha = -2}); }},
        {"addmm/scalar", [](X x) { return addmm(x[0], x[1], x[2]); }},
        {"addmm/scalar_weighted", [](X x) { return addmm(x[0], x[1], x[2], {.beta = 0.5, .alpha = -2}); }},
        {"addmm/beta_0", [](X x) { return addmm(x[0], x[1], x[2], {.beta = 0}); }},
        {"addmv", [](X x) { return addmv(x[0], x[1], x[2]); }},
        {"addmv/weighted", [](X x) { return addmv(x[0], x[1], x[2], {.beta = 2, .alpha = 0.25}); }},
        {"baddbmm", [](X x) { return baddbmm(x[0], x[1], x[2]); }},
        {"baddbmm/weighted", [](X x) { return baddbmm(x[0], x[1], x[2], {.beta = -1, .alpha = 3}); }},
        {"bilinear", [](X x) { return bilinear(x[0], x[1], x[2], x[3]); }},
        {"bilinear/rows", [](X x) { return bilinear(x[0], x[1], x[2]); }},
        {"tensordot", [](X x) { return tensordot(x[0], x[1]); }},
        {"tensordot/dims",
         [](X x) {
           return tensordot(x[0], x[1], {0, 2}, {2, 1});
         }},
        {"tensordot/none", [](X x) { return tensordot(x[0], x[1], 0); }},
        {"kron", [](X x) { return kron(x[0], x[1]); }},
        {"kron/fewer_dims", [](X x) { return kron(x[0], x[1]); }},
        {"chain_matmul", [](X x) { return chain_matmul(x); }},
        // A power of 0 alone would have no gradient.
        {"matrix_power/0", [](X x) { return matrix_power(x[0], 0) + 0 * x[0]; }},
        {"matrix_power/1", [](X x) { return matrix_power(x[0], 1); }},
        {"matrix_power/2", [](X x) { return matrix_power(x[0], 2); }},
        {"matrix_power/5", [](X x) { return matrix_power(x[0], 5); }},
        {"cross", [](X x) { return cross(x[0], x[1]); }},
        {"cross/dim", [](X x) { return cross(x[0], x[1], 1); }},
        {"cross/broadcast", [](X x) { return cross(x[0], x[1]); }},
        sums("ij,jk->ik", "3x4 4x2"),
        sums("ij,jk", "3x4 4x2"),
        sums("ba", "3x4"),
        sums("ij->", "3x4"),
        sums("ii", "3x3"),
        sums("ii->i", "3x3"),
        sums("ijij->ji", "2x3x2x3"),
        sums("i,i->", "5 5"),
        sums("i,j->ij", "3 4"),
        sums("bij,bjk->bik", "2x3x4 2x4x2"),
        sums("bthd,bshd->bhts", "2x3x2x4 2x5x2x4"),
        sums("bi,oij,bj->bo", "2x3 4x3x2 2x2"),
        sums("ab,bc,cd,de->ae", "2x3 3x2 2x4 4x3"),
        sums("...ij,...jk->...ik", "2x3x2x4 3x4x2"),
        sums("i...j->...", "2x3x2x4"),
        sums("...,...", "2x3 3"),
        sums("B...a, A...a", "2x3x2 4x3x2"),
        sums("b...,b...->b", "2x3x2 2x3x2"),
        sums("ij,ij->i", "1x4 3x4"),
        sums("ij,jk->ik", "0x4 4x2"),
        sums("ij,jk->ik", "3x0 0x2"),
        sums("iji,j->i", "2x3x2 3"),
    });

}  // namespace gradus::golden
