#!/usr/bin/env python3
"""Sorting, selection, search and counting against PyTorch: python3 tests/golden/ops/sort.py. What the file holds: golden.py.

Where elements are equal PyTorch's topk, kthvalue and mode name any of their places: those cases have none equal.
Its unique leaves elements out of order where there is a NaN; the op table says what is expected then.
"""
import math

import torch

from golden import Family

f = Family("sort")
nan, inf = math.nan, math.inf
T = lambda *v: torch.tensor(v, dtype=torch.float64)
special = T(1, nan, -0.0, 0.0, inf, -1, -inf, nan, 1)

for dim in (-1, 0, 1):
    for shape in ((3, 9, 2), (2, 3, 4, 2)):
        name = f"dim {dim} of {len(shape)}"
        x = f.distinct(*shape)
        for d in (False, True):
            f.case(f"sort/{name} {d}", lambda x: x.sort(dim=dim, descending=d, stable=True), x)
            f.case(f"sort/ties {name} {d}", lambda x: x.sort(dim=dim, descending=d, stable=True), x.round())
            f.case(f"argsort/{name} {d}", lambda x: x.argsort(dim=dim, descending=d), x, grad=False)
            f.case(f"topk/{name} {d}", lambda x: x.topk(2, dim, d, True), x)
        f.case(f"kthvalue/{name}", lambda x: x.kthvalue(2, dim), x)
        f.case(f"kthvalue/kept {name}", lambda x: x.kthvalue(1, dim, True), x)
        f.case(f"median/{name}", lambda x: x.median(dim), x)
        f.case(f"nanmedian/{name}", lambda x: x.nanmedian(dim, True), x)
        f.case(f"mode/{name}", lambda x: x.mode(dim), x)
for d in (False, True):
    f.case(f"sort/special {d}", lambda x: x.sort(descending=d, stable=True), special, grad=False)
    f.case(f"sort/long {d}", lambda x: x.sort(dim=1, descending=d, stable=True), f.rand(1, 400))
    f.case(f"sort/integers {d}", lambda x: x.sort(descending=d, stable=True), f.ints(4, 30, below=9, low=-9))
    f.case(f"sort/bools {d}", lambda x: x.sort(descending=d, stable=True), f.mask(12))
    f.case(f"topk/special {d}", lambda x: x.topk(4, largest=d)[0], special, grad=False)
    f.case(f"topk/few of many {d}", lambda x: x.topk(5, largest=d), f.distinct(1, 500))
f.case("sort/scalar", lambda x: x.sort(), f.rand())
f.case("sort/empty", lambda x: x.sort(), f.rand(2, 0))
f.case("topk/all", lambda x: x.topk(6), f.distinct(6))
f.case("topk/none", lambda x: x.topk(0), f.distinct(2, 6))
f.case("median/all", lambda x: x.median(), f.distinct(3, 4))
f.case("median/NaN", lambda x: x.median(0), T(3, nan, 1, 2, nan), grad=False)
f.case("median/NaN of all", lambda x: x.median(), T(3, nan, 1, 2, nan), grad=False)
f.case("median/one", lambda x: x.median(), f.rand(1))
f.case("median/empty", lambda x: x.median(), f.rand(0), grad=False)
f.case("median/integers", lambda x: x.median(), f.ints(7, below=100))
f.case("nanmedian/NaN", lambda x: x.nanmedian(0), T(3, nan, 1, 2, nan))
f.case("nanmedian/all", lambda x: x.nanmedian(), T(3, nan, 1, 2, nan))
f.case("mode/values", lambda x: x.mode(1)[0], f.ints(5, 9, below=4))

x = f.ints(4, 6, below=7, low=-3)
for name, v in (("integers", x), ("floats", x.double() / 2), ("empty", f.rand(0)), ("one", f.rand(1)), ("bools", f.mask(4, 2))):
    f.case(f"unique/{name}", lambda v: torch.unique(v, return_inverse=True, return_counts=True), v, grad=False)
    f.case(f"unique_consecutive/{name}", lambda v: torch.unique_consecutive(v, return_inverse=True, return_counts=True), v, grad=False)
small = f.ints(2, 9, below=2)
f.case("unique/dim 1", lambda v: torch.unique(v, dim=1, return_inverse=True, return_counts=True), small)
f.case("unique/dim 0", lambda v: torch.unique(v, dim=0, return_inverse=True, return_counts=True), small.t().reshape(9, 2, 1).contiguous())
f.case("unique_consecutive/dim 1", lambda v: torch.unique_consecutive(v, dim=1, return_inverse=True, return_counts=True), small)

f.case("bincount/plain", lambda x: x.bincount(), f.ints(20, below=6))
f.case("bincount/minlength", lambda x: x.bincount(minlength=9), f.ints(20, below=6))
f.case("bincount/empty", lambda x: x.bincount(minlength=3), f.ints(0, below=6))
f.case("bincount/weights", lambda x, w: x.bincount(w), f.ints(20, below=6), f.rand(20), grad=False)
f.case("bincount/integer weights", lambda x, w: x.bincount(w), f.ints(20, below=6), f.ints(20, below=6))
quarters = f.ints(30, below=17, low=-8).double() / 4
f.case("histc/range", lambda x: x.histc(8, -1, 1), quarters, grad=False)
f.case("histc/own range", lambda x: x.histc(8), T(-2, -1, 0.25, 0.5, 2), grad=False)
f.case("histc/alike", lambda x: x.histc(4), T(3, 3, 3), grad=False)

s = T(-1, 0, 0, 0.5, 1, 1)
asked = T(-2, -1, 0, 0.25, 0.5, 1, 2, inf, -inf, nan).reshape(2, 5)
for right in (False, True):
    f.case(f"searchsorted/{right}", lambda s, v: torch.searchsorted(s, v, right=right), s, asked, grad=False)
    f.case(f"searchsorted/lines {right}", lambda s, v: torch.searchsorted(s, v, right=right), f.rand(2, 7).sort()[0], asked, grad=False)
    f.case(f"bucketize/{right}", lambda v, s: torch.bucketize(v, s, right=right), asked, s, grad=False)
    f.case(f"isin/{right}", lambda v, s: torch.isin(v, s, invert=right), f.ints(4, 5, below=9), f.ints(3, below=9))
    f.case(f"isin/NaN {right}", lambda v, s: torch.isin(v, s, invert=right), asked, torch.cat([s, T(nan)]), grad=False)
f.case("isin/empty", lambda v, s: torch.isin(v, s), f.ints(4, below=9), f.ints(0, below=9))
f.save()
