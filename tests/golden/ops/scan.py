#!/usr/bin/env python3
"""Scans, softmax and extrema with indices against PyTorch: python3 tests/golden/ops/scan.py. What the file holds: golden.py."""
import math

import torch
import torch.nn.functional as F

from golden import Family

f = Family("scan")
inf = math.inf
T = lambda *v: torch.tensor(v, dtype=torch.float64)

for dim in (-1, 0, 1):
    for shape in ((3, 9, 2), (2, 3, 4, 2)):
        x = f.rand(*shape)
        name = f"dim {dim} of {len(shape)}"
        f.case(f"cumsum/{name}", lambda x: x.cumsum(dim), x)
        f.case(f"cumprod/{name}", lambda x: x.cumprod(dim), x)
        f.case(f"logcumsumexp/{name}", lambda x: x.logcumsumexp(dim), x * 4)
        f.case(f"cummax/{name}", lambda x: x.cummax(dim), x.round(decimals=1))
        f.case(f"cummin/{name}", lambda x: x.cummin(dim), x.round(decimals=1))
        f.case(f"softmax/{name}", lambda x: F.softmax(x, dim), x * 4)
        f.case(f"log_softmax/{name}", lambda x: F.log_softmax(x, dim), x * 4)
        f.case(f"softmin/{name}", lambda x: F.softmin(x, dim), x * 4)
        for op in ("max", "min"):
            f.case(f"{op}/{name}", lambda x: getattr(x, op)(dim), f.distinct(*shape))
        f.case(f"argmax/{name}", lambda x: x.argmax(dim), f.distinct(*shape), grad=False)
        f.case(f"argmin/{name}", lambda x: x.argmin(dim, keepdim=True), f.distinct(*shape), grad=False)
        f.case(f"normalize/{name}", lambda x: F.normalize(x, 2, dim), x)
f.case("argmax/all", lambda x: x.argmax(), f.distinct(3, 4), grad=False)
f.case("argmin/all", lambda x: x.argmin(), f.distinct(3, 4), grad=False)
f.case("cumsum/integers", lambda x: x.cumsum(0), f.ints(4, 3, below=9))
f.case("cumsum/scalar", lambda x: x.cumsum(0), f.rand())
f.case("cumsum/empty", lambda x: x.cumsum(0), f.rand(0, 3))
f.case("cumprod/integers", lambda x: x.cumprod(0), f.ints(4, 3, below=9))
f.case("cumprod/zeros", lambda x: x.cumprod(1), T(2, 0, 3, 0, 1, 0, 1, 2, 3, 4, 0, 2).reshape(3, 4))
f.case("logcumsumexp/far apart", lambda x: x.logcumsumexp(0), T(-300, 200, 100, 201, -inf, 3))
f.case("logcumsumexp/infinite", lambda x: x.logcumsumexp(0), T(-inf, -inf, 1, inf, 0), grad=False)
f.case("cummax/NaN", lambda x: x.cummax(0), T(1, 2, math.nan, 3, math.nan), grad=False)
f.case("cummin/NaN", lambda x: x.cummin(0), T(1, 2, math.nan, 0, math.nan), grad=False)
f.case("softmax/long", lambda x: F.softmax(x, 1), f.rand(2, 300, lo=-20, hi=20))
f.case("log_softmax/long", lambda x: F.log_softmax(x, 1), f.rand(2, 300, lo=-20, hi=20))
f.case("softmax/scalar", lambda x: F.softmax(x, 0), f.rand())
f.case("softmax/empty", lambda x: F.softmax(x, 1), f.rand(0, 3))
f.case("softmax/minus infinity", lambda x: F.softmax(x, 1), T(1, -inf, 2, -inf, -inf, 0).reshape(2, 3))
f.case("log_softmax/large", lambda x: F.log_softmax(x, 1), T(1e4, 1e4 + 1, -1e4, 80).reshape(2, 2))

f.save()
