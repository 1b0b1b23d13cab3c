#!/usr/bin/env python3
"""Views, joining, indexing and creation against PyTorch: python3 tests/golden/ops/structure.py. What the file holds:
golden.py. PyTorch 1.13 lacks squeeze over several dims (as three squeezes here) and unflatten as a function."""
import torch
import torch.nn.functional as F

from golden import Family

f = Family("structure")
i64 = lambda *v: torch.tensor(v, dtype=torch.int64)
flags = lambda *v: torch.tensor(v, dtype=torch.bool)
x23, x34, image = (lambda: f.rand(2, 3)), (lambda: f.rand(3, 4)), (lambda: f.rand(2, 3, 4, 2))

# --- views ---
f.case("reshape", lambda x: x.reshape(3, -1), f.rand(2, 6))
f.case("reshape/image", lambda x: x.reshape(2, 12, 2), image())
f.case("reshape/empty", lambda x: x.reshape(3, 0), f.rand(0, 3))
f.case("view", lambda x: x.contiguous().view(4, 3), x34())
f.case("flatten", lambda x: x.flatten(1), image())
f.case("flatten/number", lambda x: x.flatten(), f.rand())
f.case("unflatten", lambda x: x.unflatten(1, (2, 3)), f.rand(2, 6, 2))
f.case("permute", lambda x: x.permute(2, 0, 3, 1), image())
f.case("transpose", lambda x: x.transpose(0, -1), image())
f.case("t", lambda x: x.t(), x23())
f.case("swapaxes", lambda x: x.swapaxes(1, 2), image())
f.case("movedim", lambda x: x.movedim(0, 2), image())
f.case("movedim/several", lambda x: x.movedim((0, 3), (-1, 1)), image())
f.case("expand", lambda x: x.expand(2, -1, 4), f.rand(3, 1))
f.case("expand_as", lambda x, y: x.expand_as(y), f.rand(3, 1), f.rand(2, 3, 2))
f.case("squeeze", lambda x: x.squeeze(), f.rand(1, 3, 1))
f.case("squeeze/dim", lambda x: x.squeeze(-1), f.rand(1, 3, 1))
f.case("squeeze/several", lambda x: x.squeeze(3).squeeze(1).squeeze(0), f.rand(1, 3, 2, 1))
f.case("unsqueeze", lambda x: x.unsqueeze(1), x23())
f.case("narrow", lambda x: x.narrow(1, 1, 2), x34())
f.case("select", lambda x: x.select(1, -1), image())
f.case("diagonal", lambda x: x.diagonal(), f.rand(3, 4, 2))
f.case("diagonal/options", lambda x: x.diagonal(-1, 1, -1), image())
f.case("diagonal/outside", lambda x: x.diagonal(5), x34())
f.case("diagonal/empty", lambda x: x.diagonal(), f.rand(0, 3))
f.case("unfold_dim", lambda x: x.unfold(2, 3, 1), image())
f.case("unfold_dim/apart", lambda x: x.unfold(0, 2, 3), f.rand(8))
f.case("as_strided", lambda x: x.as_strided((3, 3), (2, 1), 1), x34())
f.case("as_strided/part", lambda x: x[:, 1:3].as_strided((2, 4), (4, 1), 0), x34())
f.case("broadcast_tensors", lambda x, y: torch.broadcast_tensors(x, y), f.rand(3, 1), f.rand(4))

# --- order, repetition ---
f.case("flip", lambda x: x.flip(0, -1), image())
f.case("flip/last", lambda x: x.flip(-1), x34())
f.case("flip/empty", lambda x: x.flip(1), f.rand(0, 3))
f.case("fliplr", torch.fliplr, x34())
f.case("flipud", torch.flipud, x34())
f.case("roll", lambda x: x.roll((1, -5), (0, 2)), image())
f.case("roll/flattened", lambda x: x.roll(4), x34())
f.case("roll/one element", lambda x: x.roll(3, 0), f.rand(1))
for k in (-1, 0, 1, 2):
    f.case(f"rot90/{k}", lambda x, k=k: x.rot90(k, (1, 2)), image())
for d in (-2, 0, 1, 7):
    f.case(f"tril/{d}", lambda x, d=d: x.tril(d), image())
    f.case(f"triu/{d}", lambda x, d=d: x.triu(d), x34())
f.case("diag", lambda x: x.diag(), f.rand(3))
f.case("diag/matrix", lambda x: x.diag(1), x34())
f.case("diag_embed", lambda x: torch.diag_embed(x), f.rand(2, 3))
f.case("diag_embed/options", lambda x: torch.diag_embed(x, -1, 0, 2), f.rand(2, 3))
f.case("diag_embed/empty", lambda x: torch.diag_embed(x, 1), f.rand(2, 0))
f.case("repeat", lambda x: x.repeat(2, 1, 3), x23())
f.case("repeat/never", lambda x: x.repeat(0, 2), x23())
f.case("tile", lambda x: x.tile((2,)), x23())
f.case("tile/in front", lambda x: x.tile((2, 1, 2)), f.rand(3))
f.case("repeat_interleave", lambda x: x.repeat_interleave(2, 1), image())
f.case("repeat_interleave/flattened", lambda x: x.repeat_interleave(3), x23())
f.case("repeat_interleave/counts", lambda x, n: x.repeat_interleave(n, 0), f.rand(3, 2), i64(2, 0, 3))
f.case("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), f.rand(2), f.rand(3))
f.case("meshgrid/xy", lambda x, y, z: torch.meshgrid(x, y, z, indexing="xy"), f.rand(2), f.rand(3), f.rand())
f.case("combinations", lambda x: torch.combinations(x), f.rand(4))
f.case("combinations/three with replacement", lambda x: torch.combinations(x, 3, True), f.rand(3))
f.case("block_diag", lambda x, y, z: torch.block_diag(x, y, z), x23(), f.rand(2), f.rand())
f.case("cartesian_prod", torch.cartesian_prod, f.rand(2), f.rand(3))

# --- joining and taking apart ---
f.case("cat", lambda x, y: torch.cat((x, y), 1), x23(), f.rand(2, 2))
f.case("cat/image", lambda x, y: torch.cat((x, y), 1), image(), f.rand(2, 1, 4, 2))
f.case("cat/empty", lambda x, y: torch.cat((x, y), 0), f.rand(0, 3), x23())
f.case("stack", lambda x, y: torch.stack((x, y), -1), x23(), x23())
f.case("hstack", lambda x, y: torch.hstack((x, y)), x23(), f.rand(2, 1))
f.case("hstack/vectors", lambda x, y: torch.hstack((x, y)), f.rand(2), f.rand(3))
f.case("vstack", lambda x, y: torch.vstack((x, y)), f.rand(3), x23())
f.case("dstack", lambda x, y: torch.dstack((x, y)), x23(), x23())
f.case("dstack/vectors", lambda x, y: torch.dstack((x, y)), f.rand(2), f.rand(2))
f.case("column_stack", lambda x, y: torch.column_stack((x, y)), f.rand(2), x23())
f.case("atleast", lambda x: (torch.atleast_1d(x), torch.atleast_2d(x), torch.atleast_3d(x)), f.rand())
f.case("atleast/vector", lambda x: (torch.atleast_1d(x), torch.atleast_2d(x), torch.atleast_3d(x)), f.rand(3))
f.case("atleast/matrix", lambda x: torch.atleast_3d(x), x23())
f.case("split", lambda x: x.split(2, 1), f.rand(2, 5))
f.case("split/sizes", lambda x: x.split((1, 3, 0, 1), 1), f.rand(2, 5))
f.case("chunk", lambda x: x.chunk(3, 1), f.rand(2, 7))
f.case("unbind", lambda x: x.unbind(1), image())
f.case("tensor_split", lambda x: x.tensor_split(3, 1), f.rand(2, 7))
f.case("tensor_split/indices", lambda x: x.tensor_split((2, -1, 9), 1), f.rand(2, 7))
f.case("tensor_split/backwards", lambda x: x.tensor_split((4, 2)), f.rand(6))
f.case("hsplit", lambda x: torch.hsplit(x, 2), x34())
f.case("vsplit", lambda x: torch.vsplit(x, (1,)), x34())
f.case("dsplit", lambda x: torch.dsplit(x, 2), image())

# --- indices ---
f.case("index_select", lambda x, i: x.index_select(1, i), image(), i64(2, 0, 2))
f.case("index_select/empty", lambda x, i: x.index_select(1, i), x23(), i64())
f.case("index_add", lambda x, i, s: x.index_add(1, i, s), x34(), i64(3, 0, 3), f.rand(3, 3))
f.case("index_copy", lambda x, i, s: x.index_copy(0, i, s), x34(), i64(2, 0), f.rand(2, 4))
f.case("index_fill", lambda x, i: x.index_fill(1, i, 2.5), x34(), i64(0, -1))
f.case("index_fill/tensor", lambda x, i, v: x.index_fill(1, i, v), x34(), i64(0, 2), f.rand())
f.case("select_scatter", lambda x, s: x.select_scatter(s, 1, -1), x34(), f.rand(3))
f.case("slice_scatter", lambda x, s: x.slice_scatter(s, 1, 0, 4, 2), x34(), f.rand(3, 2))
f.case("diagonal_scatter", lambda x, s: x.diagonal_scatter(s, -1), x34(), f.rand(2))
f.case("gather", lambda x, i: x.gather(1, i), x34(), f.ints(3, 5, below=4))
f.case("gather/first dim", lambda x, i: x.gather(0, i), x34(), f.ints(2, 3, below=3))
f.case("gather/image", lambda x, i: x.gather(2, i), image(), f.ints(2, 3, 5, 2, below=4))
f.case("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 1), f.rand(3, 4, 2), f.ints(1, 2, 2, below=4))
f.case("take", lambda x, i: x.take(i), x34(), i64(0, -1, 11, 5).reshape(2, 2))
f.case("put", lambda x, i, s: x.put(i, s), x34(), i64(0, -1, 5), f.rand(3))
f.case("put/accumulate", lambda x, i, s: x.put(i, s, True), x34(), i64(0, 5, 5), f.rand(3))
f.case("scatter", lambda x, s: x.scatter(1, i64(3, 0, 1, 2, 1, 0).reshape(3, 2), s), x34(), f.rand(3, 2))
f.case("scatter/value", lambda x, i: x.scatter(0, i, 1.5), x34(), f.ints(2, 4, below=3))
f.case("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), x34(), f.ints(3, 6, below=4), f.rand(3, 6))
f.case("scatter_add/first dim", lambda x, i, s: x.scatter_add(0, i, s), x34(), f.ints(5, 4, below=3), f.rand(5, 4))
for how in ("sum", "prod", "mean", "amax", "amin"):
    for own in (True, False):
        f.case(f"scatter_reduce/{how}{'' if own else ' without self'}",
               lambda x, i, s, how=how, own=own: x.scatter_reduce(1, i, s, how, include_self=own),
               f.distinct(3, 4), f.ints(3, 6, below=4), f.distinct(3, 6, lo=0.2, hi=2.2))
f.case("scatter_reduce/ties", lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), torch.tensor([1., 2., 3.]).double(),
       i64(0, 0, 1, 2), torch.tensor([1., 1., 2., 1.]).double())
f.case("scatter_reduce/zeros", lambda x, i, s: x.scatter_reduce(0, i, s, "prod"), torch.tensor([0., 2., 3., 4.]).double(),
       i64(0, 0, 1, 1, 2, 2, 2), torch.tensor([2., 3., 0., 4., 0., 0., 5.]).double())
f.case("scatter_reduce/integers", lambda x, i, s: (x.scatter_reduce(0, i, s, "mean"), x.scatter_reduce(0, i, s, "amin")),
       i64(5, -3, 2), i64(0, 1, 1, 0), i64(2, -4, 1, 9))
f.case("masked_fill", lambda x, m: x.masked_fill(m, 3.0), x34(), f.mask(3, 4))
f.case("masked_fill/tensor", lambda x, m, v: x.masked_fill(m, v), x34(), f.mask(4), f.rand())
f.case("masked_select", lambda x, m: x.masked_select(m), x34(), f.mask(3, 4))
f.case("masked_select/broadcast", lambda x, m: x.masked_select(m), x34(), flags(True, False, True, False))
f.case("masked_select/none", lambda x, m: x.masked_select(m), x23(), torch.zeros(2, 3).bool())
f.case("masked_scatter", lambda x, m, s: x.masked_scatter(m, s), x34(), f.mask(3, 4), f.rand(13))
f.case("masked_scatter/broadcast", lambda x, m, s: x.masked_scatter(m, s), x34(), flags(True, False, False, True), f.rand(2, 3))
f.case("nonzero", lambda x: x.nonzero(), f.mask(3, 4), grad=False)
f.case("one_hot", lambda i: F.one_hot(i, 5), f.ints(2, 3, below=4))
f.case("one_hot/told", lambda i: F.one_hot(i), f.ints(2, 3, below=4))
f.case("where", torch.where, f.mask(3, 4), x34(), f.rand(4))

# --- x[...] ---
f.case("index/pairs", lambda x, i, j: x[i, j], x34(), i64(2, 0, -1), i64(-1, 1, 3))
f.case("index/second", lambda x, i: x[:, i], image(), i64(2, 0).reshape(2, 1))
f.case("index/apart", lambda x, i, j: x[i, :, j], image(), i64(1, 0, 1), i64(2, 0, 3))
f.case("index/mask", lambda x, m: x[m], image(), f.mask(2, 3))
f.case("index/mask and indices", lambda x, m, i: x[m, i], x34(), flags(True, False, True), i64(1, 3))
f.case("index/slices", lambda x: x[1, 1:, ::2, None], image())
f.case("index/ellipsis", lambda x: x[..., -1], image())
f.case("index/slice and indices", lambda x, i: x[1:, i, 1:3], image(), i64(2, 0, 2))
f.case("index/number and indices", lambda x, i: x[..., i, 0], image(), i64(2, 0, 2))
f.case("index_put", lambda x, i, j, v: x.index_put((i, j), v), x34(), i64(2, 0), i64(1, 3), f.rand(2))
f.case("index_put/accumulate", lambda x, i, v: x.index_put((i,), v, accumulate=True), x34(), i64(2, 0, 2), f.rand(3, 4))


def assigned(at):
    def run(x, v, *rest):
        y = x.clone()
        y[at(*rest)] = v
        return y
    return run


f.case("assign/slices", assigned(lambda: (slice(0, 2), slice(1, None, 2))), x34(), f.rand(2, 1))
f.case("assign/number", assigned(lambda: (1, Ellipsis)), image(), f.rand(4, 2))
f.case("assign/none", assigned(lambda: (None, slice(1, 3))), x34(), f.rand(1, 2, 4))
f.case("assign/mask", assigned(lambda m: m), x34(), f.rand(), f.mask(3, 4))
f.case("assign/indices", assigned(lambda i: (slice(None), i)), x34(), f.rand(3, 2), i64(3, 0))
f.case("assign/mask and slice", assigned(lambda m: (m, slice(1, 3))), x34(), f.rand(2), flags(True, False, True))

# --- tables of rows ---
f.case("embedding", lambda i, w: F.embedding(i, w), f.ints(2, 3, below=5), f.rand(5, 4))
f.case("embedding/options", lambda i, w: F.embedding(i, w, padding_idx=1, scale_grad_by_freq=True),
       i64(3, 1, 3, 0, 3, 1).reshape(2, 3), f.rand(5, 4))
f.case("embedding/negative padding", lambda i, w: F.embedding(i, w, padding_idx=-2), i64(3, 1, 4), f.rand(5, 4))
f.case("embedding/number", lambda i, w: F.embedding(i, w), i64(2).reshape(()), f.rand(5, 4))
f.case("embedding/none", lambda i, w: F.embedding(i, w), i64(), f.rand(5, 4))


def renormed(i, w):
    w = w.clone()
    F.embedding(i, w, max_norm=1.2, norm_type=3.0)
    return w


f.case("embedding_renorm_", renormed, i64(3, 1, 3), f.rand(5, 4), grad=False)

# --- creation ---
double = dict(dtype=torch.float64)
f.case("creation", lambda: (torch.arange(2, 9, 3), torch.arange(1, -1, -0.5, **double), torch.eye(2, 3, **double),
                            torch.linspace(-1, 2, 7, **double), torch.linspace(3, 4, 1, **double),
                            torch.logspace(-1, 2, 5, **double), torch.logspace(0, 3, 3, base=2, **double),
                            torch.full((2, 2), 1.5, **double), torch.tril_indices(3, 4, 1), torch.triu_indices(4, 3, -1),
                            torch.tril_indices(3, 3, -5)))
f.save()
