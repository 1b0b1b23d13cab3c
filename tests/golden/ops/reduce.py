#!/usr/bin/env python3
"""Reductions and distances against PyTorch: python3 tests/golden/ops/reduce.py. What the file holds: golden.py.

aminmax has no gradient in PyTorch 1.13.
"""
import math

import torch
import torch.nn.functional as F

from golden import Family

f = Family("reduce")
inf = math.inf
T = lambda *v: torch.tensor(v, dtype=torch.float64)

# name, dims (None: all), keepdim, shape
OVER = [("all", (0, 1, 2, 3), False, (2, 3, 4, 2)), ("inner", (3,), False, (2, 3, 2, 5)), ("outer", (0,), True, (3, 2, 4)),
        ("channels", (0, 2, 3), True, (2, 3, 4, 2)), ("middle", (1,), False, (2, 5, 3)), ("one", (0,), False, (1,)),
        ("row", (1,), False, (3, 70))]

for name, dims, keep, shape in OVER:
    x = f.rand(*shape)
    f.case(f"sum/{name}", lambda x: x.sum(dims, keep), x)
    f.case(f"mean/{name}", lambda x: x.mean(dims, keep), x)
    f.case(f"amax/{name}", lambda x: x.amax(dims, keep), f.distinct(*shape))
    f.case(f"amin/{name}", lambda x: x.amin(dims, keep), f.distinct(*shape))
    f.case(f"logsumexp/{name}", lambda x: x.logsumexp(dims, keep), x * 4)
    f.case(f"nansum/{name}", lambda x: x.nansum(dims, keep), torch.where(x > 1, torch.full_like(x, math.nan), x), grad=False)
    f.case(f"nanmean/{name}", lambda x: x.nanmean(dims, keep), torch.where(x > 1, torch.full_like(x, math.nan), x), grad=False)
    f.case(f"count_nonzero/{name}", lambda x: x.count_nonzero(dims), x.round(), grad=False)
    for p in (0, 1, 2, 3, 0.5, 2.5, -1, inf, -inf) if name in ("middle", "channels") else (2,):
        f.case(f"norm/{p} {name}", lambda x: torch.linalg.vector_norm(x, p, dims, keep), x)
    if name != "one":
        f.case(f"var/{name}", lambda x: x.var(dims, unbiased=True, keepdim=keep), x)
        f.case(f"std/{name}", lambda x: x.std(dims, unbiased=True, keepdim=keep), x)
        f.case(f"var_mean/{name}", lambda x: torch.var_mean(x, dims, unbiased=False, keepdim=keep), x)
        f.case(f"std_mean/{name}", lambda x: torch.std_mean(x, dims, unbiased=False, keepdim=keep), x)
f.case("sum/empty", lambda x: x.sum(1), f.rand(3, 0))
f.case("mean/empty", lambda x: x.mean(1), f.rand(2, 0), grad=False)
f.case("sum/scalar", lambda x: x.sum(), f.rand())
f.case("sum/integers", lambda x: x.sum(1), f.ints(3, 4, below=50, low=-50))
f.case("sum/bools", lambda x: x.sum(0), f.mask(5, 3))
f.case("prod/integers", lambda x: x.prod(1), f.ints(3, 4, below=9, low=-9))
f.case("amax/integers", lambda x: x.amax(0), f.ints(3, 4, below=9, low=-9))
f.case("amax/ties", lambda x: x.amax(1), f.rand(3, 6).round())
f.case("max/all", lambda x: x.max(), f.distinct(3, 4))
f.case("min/all", lambda x: x.min(), f.distinct(3, 4))
f.case("norm/zeros 2", lambda x: torch.linalg.vector_norm(x, 2, 1), torch.zeros(2, 3, dtype=torch.float64))
f.case("norm/zeros 3", lambda x: torch.linalg.vector_norm(x, 3, 1), torch.zeros(2, 3, dtype=torch.float64))
f.case("norm/some zeros 3", lambda x: torch.linalg.vector_norm(x, 3, 1), f.rand(3, 5).round())
f.case("norm/some zeros 0.5", lambda x: torch.linalg.vector_norm(x, 0.5, 1), f.rand(3, 5).round())
f.case("norm/ties inf", lambda x: torch.linalg.vector_norm(x, inf, 1), f.rand(3, 5).round())
f.case("std/zeros", lambda x: x.std(1), torch.ones(2, 3, dtype=torch.float64))
f.case("var/one", lambda x: x.var(1), f.rand(3, 1), grad=False)
for keep in (False, True):
    f.case(f"prod/{keep}", lambda x: x.prod(1, keep), f.rand(3, 5, 2))
f.case("prod/all", lambda x: x.prod(), f.rand(2, 3))
f.case("prod/zeros", lambda x: x.prod(1), T(2, 0, 3, 0, 1, 0, 1, 2, 3).reshape(3, 3))
f.case("aminmax/all", lambda x: tuple(torch.aminmax(x)), f.distinct(3, 4), grad=False)
f.case("aminmax/dim", lambda x: tuple(torch.aminmax(x, dim=1, keepdim=True)), f.distinct(3, 4), grad=False)
f.case("any/dim", lambda x: x.any(1), f.mask(4, 3))
f.case("all/dim", lambda x: x.all(1, keepdim=True), f.mask(4, 2))
f.case("any/all", lambda x: x.any(), f.mask(4, 3))
f.case("all/empty", lambda x: x.all(), f.mask(0, 3))

f.case("diff/1", lambda x: x.diff(), f.rand(3, 5))
f.case("diff/2 dim 0", lambda x: x.diff(n=2, dim=0), f.rand(5, 3))
f.case("diff/ends", lambda x, a, b: x.diff(prepend=a, append=b), f.rand(3, 5), f.rand(3, 2), f.rand(3, 1))
f.case("diff/too often", lambda x: x.diff(n=4), f.rand(2, 3))
f.case("diff/bools", lambda x: x.diff(), f.mask(3, 5))
f.case("diff/integers", lambda x: x.diff(), f.ints(3, 5, below=9))

f.case("normalize/p 3", lambda x: F.normalize(x, 3, 0), f.rand(4, 3))
f.case("normalize/zeros", lambda x: F.normalize(x), torch.zeros(2, 3, dtype=torch.float64))
f.case("cosine_similarity/rows", lambda a, b: F.cosine_similarity(a, b), f.rand(3, 5), f.rand(3, 5))
f.case("cosine_similarity/broadcast", lambda a, b: F.cosine_similarity(a, b, dim=-1), f.rand(3, 1, 5), f.rand(4, 5))
for p in (1, 2, 3, inf):
    f.case(f"pairwise_distance/{p}", lambda a, b: F.pairwise_distance(a, b, p), f.rand(3, 5), f.rand(3, 5))
for p in (0, 0.5, 1, 2, 3, inf):
    f.case(f"cdist/{p}", lambda a, b: torch.cdist(a, b, p), f.rand(2, 3, 5), f.rand(2, 4, 5))
f.case("cdist/broadcast", lambda a, b: torch.cdist(a, b), f.rand(2, 1, 3, 4), f.rand(3, 2, 4))
f.case("cdist/no rows", lambda a, b: torch.cdist(a, b), f.rand(0, 4), f.rand(3, 4))
f.case("cdist/no coordinates", lambda a, b: torch.cdist(a, b), f.rand(2, 0), f.rand(3, 0))
f.save()
