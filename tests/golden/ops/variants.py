#!/usr/bin/env python3
"""Further forms of ops against PyTorch: python3 tests/golden/ops/variants.py. What the file holds: golden.py."""
import numpy as np
import torch
import torch.nn.functional as F

from golden import Family

f = Family("variants")

# Pooling: indices of adaptive windows, samples without a batch dim.
f.case("adaptive_max_pool1d_with_indices", lambda x: F.adaptive_max_pool1d(x, 3, return_indices=True), f.distinct(2, 3, 7))
f.case("adaptive_max_pool2d_with_indices", lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), f.distinct(2, 9, 7, 5))
f.case("adaptive_max_pool2d_with_indices/all", lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True), f.distinct(1, 2, 19, 18))
f.case("adaptive_max_pool3d_with_indices", lambda x: F.adaptive_max_pool3d(x, (2, 3, 1), return_indices=True),
       f.distinct(2, 3, 3, 7, 5))
f.case("adaptive_max_pool2d_with_indices/sample", lambda x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True), f.distinct(3, 5, 4))
f.case("max_pool1d/sample", lambda x: F.max_pool1d(x, 3, 2, 1, 2, True), f.distinct(3, 11))
f.case("max_pool2d/sample", lambda x: F.max_pool2d(x, 3, 2, 1), f.distinct(3, 7, 8))
f.case("max_pool2d_with_indices/sample", lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), f.distinct(3, 7, 8))
f.case("max_pool3d/sample", lambda x: F.max_pool3d(x, 2), f.distinct(2, 4, 6, 5))
f.case("avg_pool1d/sample", lambda x: F.avg_pool1d(x, 3, 2, 1, True, False), f.rand(3, 10))
f.case("avg_pool2d/sample", lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=7), f.rand(3, 6, 6))
f.case("avg_pool3d/sample", lambda x: F.avg_pool3d(x, 2), f.rand(2, 4, 6, 5))
f.case("adaptive_avg_pool1d/sample", lambda x: F.adaptive_avg_pool1d(x, 3), f.rand(3, 7))
f.case("adaptive_avg_pool2d/sample", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), f.rand(3, 7, 5))
f.case("adaptive_avg_pool3d/sample", lambda x: F.adaptive_avg_pool3d(x, 2), f.rand(2, 3, 7, 5))
f.case("lp_pool1d/sample", lambda x: F.lp_pool1d(x, 3.0, 3, 2), f.rand(3, 8, lo=0.2))
f.case("lp_pool2d/sample", lambda x: F.lp_pool2d(x, 2.0, (2, 3), 2, True), f.rand(3, 7, 8, lo=0.2))


def unpooled(x):
    y, i = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(y, i, 2, output_size=x.shape[1:])


f.case("max_unpool/sample", unpooled, f.distinct(3, 4, 6))

# Pixels of other than four dims.
f.case("pixel_shuffle/sample", lambda x: F.pixel_shuffle(x, 2), f.rand(12, 3, 4))
f.case("pixel_shuffle/videos", lambda x: F.pixel_shuffle(x, 3), f.rand(2, 3, 9, 2, 3))
f.case("pixel_unshuffle/sample", lambda x: F.pixel_unshuffle(x, 2), f.rand(3, 4, 6))
f.case("pixel_unshuffle/videos", lambda x: F.pixel_unshuffle(x, 3), f.rand(2, 1, 2, 3, 6))

# Element by element.
for threshold in (1.0, -5.0, 40.0):
    f.case(f"softplus/threshold {threshold:g}", lambda x, t=threshold: F.softplus(x, 2.0, t), f.rand(6, 7, lo=-6, hi=25))
for mode in ("trunc", "floor"):
    f.case(f"div/{mode}", lambda a, b, m=mode: torch.div(a, b, rounding_mode=m), f.rand(5, 9, lo=-9, hi=9), f.rand(9, lo=-2, hi=2))
    f.case(f"div/{mode} number", lambda a, m=mode: torch.div(a, -0.7, rounding_mode=m), f.rand(5, 9, lo=-9, hi=9))
    f.case(f"div/{mode} integers", lambda a, b, m=mode: torch.div(a, b, rounding_mode=m), f.ints(60, low=-30, below=30), f.ints(60, low=1, below=6))
    f.case(f"div/{mode} negative integers", lambda a, b, m=mode: torch.div(a, b, rounding_mode=m), f.ints(60, low=-30, below=30),
           f.ints(60, low=-6, below=0))
f.case("add/alpha", lambda a, b: torch.add(a, b, alpha=-0.75), f.rand(3, 5), f.rand(5))
f.case("add/alpha number", lambda a: torch.add(a, 2.5, alpha=3), f.rand(3, 5))
f.case("add/alpha integers", lambda a, b: torch.add(a, b, alpha=-3), f.ints(9, below=30), f.ints(9, below=30))
f.case("sub/alpha", lambda a, b: torch.sub(a, b, alpha=1.5), f.rand(3, 1), f.rand(5))

# Convolution by the names of its padding.
for padding in ("valid", "same"):
    f.case(f"conv1d/{padding}", lambda x, w, p=padding: F.conv1d(x, w, padding=p, dilation=3), f.rand(2, 2, 9), f.rand(3, 2, 2))
    f.case(f"conv2d/{padding}", lambda x, w, p=padding: F.conv2d(x, w, padding=p, dilation=(2, 1)), f.rand(1, 2, 7, 6), f.rand(3, 2, 2, 4))
    f.case(f"conv3d/{padding}", lambda x, w, p=padding: F.conv3d(x, w, padding=p), f.rand(1, 2, 4, 5, 4), f.rand(2, 2, 2, 3, 4))

# Sampling by cubic convolution.
for padding in ("zeros", "border", "reflection"):
    for aligned in (False, True):
        f.case(f"grid_sample/bicubic {padding}{' aligned' if aligned else ''}",
               lambda x, g, p=padding, a=aligned: F.grid_sample(x, g, "bicubic", p, a), f.rand(2, 2, 4, 5),
               f.rand(2, 3, 4, 2, lo=-1.9, hi=1.9))
f.case("grid_sample/bicubic one cell", lambda x, g: F.grid_sample(x, g, "bicubic", "zeros", False), f.rand(1, 2, 1, 1),
       f.rand(1, 3, 2, 2))

# Scans without the element itself.
before = lambda x, d, first: torch.cat([torch.full_like(x.narrow(d, 0, 1), first), x.narrow(d, 0, x.size(d) - 1)], d)
f.case("cumsum/exclusive", lambda x: torch.cumsum(before(x, 1, 0), 1), f.rand(3, 7, 2))
f.case("cumsum/exclusive reverse", lambda x: torch.cumsum(before(x.flip(1), 1, 0), 1).flip(1), f.rand(3, 7))
f.case("cumsum/exclusive integers", lambda x: torch.cumsum(before(x, 0, 0), 0), f.ints(9, below=5))
f.case("cumprod/exclusive", lambda x: torch.cumprod(before(x, 1, 1), 1), f.rand(3, 7, 2))
f.case("cumprod/reverse", lambda x: torch.cumprod(x.flip(0), 0).flip(0), f.rand(6, 3))
f.case("cumprod/exclusive reverse", lambda x: torch.cumprod(before(x.flip(0), 0, 1), 0).flip(0), f.rand(6, 3))

# NumPy's.
put = lambda a: torch.from_numpy(np.ascontiguousarray(a))
f.case("unique/index", lambda x: tuple(put(a) for a in np.unique(x.numpy(), return_index=True)), f.ints(4, 9, below=7, low=-3))
f.case("unique/index of columns", lambda x: tuple(put(a) for a in np.unique(x.numpy(), return_index=True, axis=1)), f.ints(2, 12, below=2))
f.case("eye", lambda: tuple(put(np.eye(n, m, k)) for n, m, k in ((3, 5, 1), (3, 5, -2), (5, 3, -1), (4, 4, 7))))
f.save()
