// Views, joins, indexing, scatter, embedding and creation ops against PyTorch's values (inputs: structure.py;
// tolerances: golden_ops.h).
#include "gradus/autograd/indexing.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

using List = std::vector<Tensor>;
using Numbers = std::vector<int64_t>;

GoldenOp reduced(const std::string& name, ScatterReduce how, bool include_self) {
  return {"scatter_reduce/" + name,
          [=](X x) { return scatter_reduce(x[0], 1, x[1], x[2], how, {.include_self = include_self}); }};
}

// A copy of x[0] whose part at the indices `at` is assigned x[1].
template <class At> GoldenOp assigned(const std::string& name, At at) {
  return {"assign/" + name, [at](X x) {
            Tensor y = clone(x[0]);
            Indexed{y, &y, at(x)} = x[1];
            return y;
          }};
}

constexpr TensorOptions kDouble = {.dtype = DType::kF64};

}  // namespace

static const bool views = add_golden_ops("structure", {
    {"reshape", [](X x) { return reshape(x[0], {3, -1}); }},
    {"reshape/image", [](X x) { return reshape(x[0], {2, 12, 2}); }},
    {"reshape/empty", [](X x) { return reshape(x[0], {3, 0}); }},
    {"view", [](X x) { return view(contiguous(x[0]), {4, 3}); }},
    {"flatten", [](X x) { return flatten(x[0], 1); }},
    {"flatten/number", [](X x) { return flatten(x[0]); }},
    {"unflatten", [](X x) { return unflatten(x[0], 1, {2, 3}); }},
    {"permute", [](X x) { return permute(x[0], {2, 0, 3, 1}); }},
    {"transpose", [](X x) { return transpose(x[0], 0, -1); }},
    {"t", [](X x) { return t(x[0]); }},
    {"swapaxes", [](X x) { return swapaxes(x[0], 1, 2); }},
    {"movedim", [](X x) { return movedim(x[0], 0, 2); }},
    {"movedim/several", [](X x) { return movedim(x[0], {0, 3}, {-1, 1}); }},
    {"expand", [](X x) { return expand(x[0], {2, -1, 4}); }},
    {"expand_as", [](X x) { return expand_as(x[0], x[1]); }},
    {"squeeze", [](X x) { return squeeze(x[0]); }},
    {"squeeze/dim", [](X x) { return squeeze(x[0], -1); }},
    {"squeeze/several", [](X x) { return squeeze(x[0], {0, 1, 3}); }},
    {"unsqueeze", [](X x) { return unsqueeze(x[0], 1); }},
    {"narrow", [](X x) { return narrow(x[0], 1, 1, 2); }},
    {"select", [](X x) { return select(x[0], 1, -1); }},
    {"diagonal", [](X x) { return diagonal(x[0]); }},
    {"diagonal/options", [](X x) { return diagonal(x[0], {-1, 1, -1}); }},
    {"diagonal/outside", [](X x) { return diagonal(x[0], {5}); }},
    {"diagonal/empty", [](X x) { return diagonal(x[0]); }},
    {"unfold_dim", [](X x) { return unfold_dim(x[0], 2, 3, 1); }},
    {"unfold_dim/apart", [](X x) { return unfold_dim(x[0], 0, 2, 3); }},
    {"as_strided", [](X x) { return as_strided(x[0], {3, 3}, {2, 1}, 1); }, false},
    {"as_strided/part",
     [](X x) { return as_strided(x[0][{Slice(), Slice(1, 3)}], {2, 4}, {4, 1}, 0); }, false},
    {"broadcast_tensors", [](X x) { return broadcast_tensors(x); }},
    {"flip", [](X x) { return flip(x[0], {0, -1}); }},
    {"flip/last", [](X x) { return flip(x[0], {-1}); }},
    {"flip/empty", [](X x) { return flip(x[0], {1}); }},
    {"fliplr", [](X x) { return fliplr(x[0]); }},
    {"flipud", [](X x) { return flipud(x[0]); }},
    {"roll", [](X x) { return roll(x[0], {1, -5}, {0, 2}); }},
    {"roll/flattened", [](X x) { return roll(x[0], {4}); }},
    {"roll/one element", [](X x) { return roll(x[0], {3}, {0}); }},
    {"rot90/-1", [](X x) { return rot90(x[0], -1, {1, 2}); }},
    {"rot90/0", [](X x) { return rot90(x[0], 0, {1, 2}); }},
    {"rot90/1", [](X x) { return rot90(x[0], 1, {1, 2}); }},
    {"rot90/2", [](X x) { return rot90(x[0], 2, {1, 2}); }},
    {"tril/-2", [](X x) { return tril(x[0], -2); }},
    {"tril/0", [](X x) { return tril(x[0]); }},
    {"tril/1", [](X x) { return tril(x[0], 1); }},
    {"tril/7", [](X x) { return tril(x[0], 7); }},
    {"triu/-2", [](X x) { return triu(x[0], -2); }},
    {"triu/0", [](X x) { return triu(x[0]); }},
    {"triu/1", [](X x) { return triu(x[0], 1); }},
    {"triu/7", [](X x) { return triu(x[0], 7); }},
    {"diag", [](X x) { return diag(x[0]); }},
    {"diag/matrix", [](X x) { return diag(x[0], 1); }},
    {"diag_embed", [](X x) { return diag_embed(x[0]); }},
    {"diag_embed/options", [](X x) { return diag_embed(x[0], {-1, 0, 2}); }},
    {"diag_embed/empty", [](X x) { return diag_embed(x[0], {1}); }},
    {"repeat", [](X x) { return repeat(x[0], {2, 1, 3}); }},
    {"repeat/never", [](X x) { return repeat(x[0], {0, 2}); }},
    {"tile", [](X x) { return tile(x[0], {2}); }},
    {"tile/in front", [](X x) { return tile(x[0], {2, 1, 2}); }},
    {"repeat_interleave", [](X x) { return repeat_interleave(x[0], 2, 1); }},
    {"repeat_interleave/flattened", [](X x) { return repeat_interleave(x[0], 3); }},
    {"repeat_interleave/counts", [](X x) { return repeat_interleave(x[0], x[1], 0); }},
    {"meshgrid", [](X x) { return meshgrid(x); }},
    {"meshgrid/xy", [](X x) { return meshgrid(x, MeshIndexing::kXY); }},
    {"combinations", [](X x) { return combinations(x[0]); }},
    {"combinations/three with replacement",
     [](X x) { return combinations(x[0], 3, {.with_replacement = true}); }},
    {"block_diag", [](X x) { return block_diag(x); }},
    {"cartesian_prod", [](X x) { return cartesian_prod(x); }},

    {"cat", [](X x) { return cat(x, 1); }},
    {"cat/image", [](X x) { return cat(x, 1); }},
    {"cat/empty", [](X x) { return cat(x, 0); }},
    {"stack", [](X x) { return stack(x, -1); }},
    {"hstack", [](X x) { return hstack(x); }},
    {"hstack/vectors", [](X x) { return hstack(x); }},
    {"vstack", [](X x) { return vstack(x); }},
    {"dstack", [](X x) { return dstack(x); }},
    {"dstack/vectors", [](X x) { return dstack(x); }},
    {"column_stack", [](X x) { return column_stack(x); }},
    {"atleast", [](X x) { return List{atleast_1d(x[0]), atleast_2d(x[0]), atleast_3d(x[0])}; }},
    {"atleast/vector", [](X x) { return List{atleast_1d(x[0]), atleast_2d(x[0]), atleast_3d(x[0])}; }},
    {"atleast/matrix", [](X x) { return atleast_3d(x[0]); }},
    {"split", [](X x) { return split(x[0], 2, 1); }},
    {"split/sizes", [](X x) { return split(x[0], Numbers{1, 3, 0, 1}, 1); }},
    {"chunk", [](X x) { return chunk(x[0], 3, 1); }},
    {"unbind", [](X x) { return unbind(x[0], 1); }},
    {"tensor_split", [](X x) { return tensor_split(x[0], 3, 1); }},
    {"tensor_split/indices", [](X x) { return tensor_split(x[0], Numbers{2, -1, 9}, 1); }},
    {"tensor_split/backwards", [](X x) { return tensor_split(x[0], Numbers{4, 2}); }},
    {"hsplit", [](X x) { return hsplit(x[0], 2); }},
    {"vsplit", [](X x) { return vsplit(x[0], Numbers{1}); }},
    {"dsplit", [](X x) { return dsplit(x[0], 2); }},

    {"index_select", [](X x) { return index_select(x[0], 1, x[1]); }},
    {"index_select/empty", [](X x) { return index_select(x[0], 1, x[1]); }},
    {"index_add", [](X x) { return index_add(x[0], 1, x[1], x[2]); }},
    {"index_copy", [](X x) { return index_copy(x[0], 0, x[1], x[2]); }},
    {"index_fill", [](X x) { return index_fill(x[0], 1, x[1], 2.5); }},
    {"index_fill/tensor", [](X x) { return index_fill(x[0], 1, x[1], x[2]); }},
    {"select_scatter", [](X x) { return select_scatter(x[0], x[1], 1, -1); }},
    {"slice_scatter", [](X x) { return slice_scatter(x[0], x[1], 1, 0, 4, 2); }},
    {"diagonal_scatter", [](X x) { return diagonal_scatter(x[0], x[1], {.offset = -1}); }},
    {"gather", [](X x) { return gather(x[0], 1, x[1]); }},
    {"gather/first dim", [](X x) { return gather(x[0], 0, x[1]); }},
    {"gather/image", [](X x) { return gather(x[0], 2, x[1]); }},
    {"take_along_dim", [](X x) { return take_along_dim(x[0], x[1], 1); }},
    {"take", [](X x) { return take(x[0], x[1]); }},
    {"put", [](X x) { return put(x[0], x[1], x[2]); }},
    {"put/accumulate", [](X x) { return put(x[0], x[1], x[2], true); }},
    {"scatter", [](X x) { return scatter(x[0], 1, tensor(Numbers{3, 0, 1, 2, 1, 0}, {3, 2}), x[1]); }},
    {"scatter/value", [](X x) { return scatter(x[0], 0, x[1], 1.5); }},
    {"scatter_add", [](X x) { return scatter_add(x[0], 1, x[1], x[2]); }},
    {"scatter_add/first dim", [](X x) { return scatter_add(x[0], 0, x[1], x[2]); }},
    reduced("sum", ScatterReduce::kSum, true),
    reduced("sum without self", ScatterReduce::kSum, false),
    reduced("prod", ScatterReduce::kProd, true),
    reduced("prod without self", ScatterReduce::kProd, false),
    reduced("mean", ScatterReduce::kMean, true),
    reduced("mean without self", ScatterReduce::kMean, false),
    reduced("amax", ScatterReduce::kAmax, true),
    reduced("amax without self", ScatterReduce::kAmax, false),
    reduced("amin", ScatterReduce::kAmin, true),
    reduced("amin without self", ScatterReduce::kAmin, false),
    {"scatter_reduce/ties", [](X x) { return scatter_reduce(x[0], 0, x[1], x[2], ScatterReduce::kAmax); }},
    {"scatter_reduce/zeros", [](X x) { return scatter_reduce(x[0], 0, x[1], x[2], ScatterReduce::kProd); }},
    {"scatter_reduce/integers",
     [](X x) {
       return List{scatter_reduce(x[0], 0, x[1], x[2], ScatterReduce::kMean),
                   scatter_reduce(x[0], 0, x[1], x[2], ScatterReduce::kAmin)};
     }},
    {"masked_fill", [](X x) { return masked_fill(x[0], x[1], 3.0); }},
    {"masked_fill/tensor", [](X x) { return masked_fill(x[0], x[1], x[2]); }},
    {"masked_select", [](X x) { return masked_select(x[0], x[1]); }},
    {"masked_select/broadcast", [](X x) { return masked_select(x[0], x[1]); }},
    {"masked_select/none", [](X x) { return masked_select(x[0], x[1]); }},
    {"masked_scatter", [](X x) { return masked_scatter(x[0], x[1], x[2]); }},
    {"masked_scatter/broadcast", [](X x) { return masked_scatter(x[0], x[1], x[2]); }},
    {"nonzero", [](X x) { return nonzero(x[0]); }},
    {"one_hot", [](X x) { return one_hot(x[0], 5); }},
    {"one_hot/told", [](X x) { return one_hot(x[0]); }},
    {"where", [](X x) { return where(x[0], x[1], x[2]); }},

    {"index/pairs", [](X x) { return x[0][{x[1], x[2]}].get(); }},
    {"index/second", [](X x) { return index(x[0], {Tensor(), x[1]}); }},
    {"index/apart", [](X x) { return x[0][{x[1], Slice(), x[2]}].get(); }},
    {"index/mask", [](X x) { return x[0][x[1]].get(); }},
    {"index/mask and indices", [](X x) { return x[0][{x[1], x[2]}].get(); }},
    {"index/slices", [](X x) { return x[0][{1, Slice(1), Slice(None, None, 2), None}].get(); }},
    {"index/ellipsis", [](X x) { return x[0][{Ellipsis, -1}].get(); }},
    {"index/slice and indices", [](X x) { return x[0][{Slice(1), x[1], Slice(1, 3)}].get(); }},
    {"index/number and indices", [](X x) { return x[0][{Ellipsis, x[1], 0}].get(); }},
    {"index_put", [](X x) { return index_put(x[0], {x[1], x[2]}, x[3]); }},
    {"index_put/accumulate", [](X x) { return index_put(x[0], {x[1]}, x[2], true); }},
    assigned("slices", [](X) { return std::vector<Index>{Slice(0, 2), Slice(1, None, 2)}; }),
    assigned("number", [](X) { return std::vector<Index>{1, Ellipsis}; }),
    assigned("none", [](X) { return std::vector<Index>{None, Slice(1, 3)}; }),
    assigned("mask", [](X x) { return std::vector<Index>{x[2]}; }),
    assigned("indices", [](X x) { return std::vector<Index>{Slice(), x[2]}; }),
    assigned("mask and slice", [](X x) { return std::vector<Index>{x[2], Slice(1, 3)}; }),

    {"embedding", [](X x) { return embedding(x[0], x[1]); }},
    {"embedding/options",
     [](X x) { return embedding(x[0], x[1], {.padding_idx = 1, .scale_grad_by_freq = true}); }},
    {"embedding/negative padding", [](X x) { return embedding(x[0], x[1], {.padding_idx = -2}); }},
    {"embedding/number", [](X x) { return embedding(x[0], x[1]); }},
    {"embedding/none", [](X x) { return embedding(x[0], x[1]); }},
    {"embedding_renorm_",
     [](X x) {
       const Tensor w = contiguous(clone(x[1]));
       embedding_renorm_(w, x[0], 1.2, 3);
       return w;
     }},
    {"creation",
     [](X) {
       return List{arange(2, 9, 3),
                   arange_from(1, -1, -0.5, kDouble),
                   eye(2, 3, kDouble),
                   linspace(-1, 2, 7, kDouble),
                   linspace(3, 4, 1, kDouble),
                   logspace(-1, 2, 5, 10, kDouble),
                   logspace(0, 3, 3, 2, kDouble),
                   full({2, 2}, 1.5, kDouble),
                   tril_indices(3, 4, 1),
                   triu_indices(4, 3, -1),
                   tril_indices(3, 3, -5)};
     }},
});

}  // namespace gradus::golden
