#!/usr/bin/env python3
"""Pooling against PyTorch: python3 tests/golden/ops/pool.py. golden.py documents the file; calls: pool_test.cc."""
import torch.nn.functional as F

from golden import Family

f = Family("pool")
f.case("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1, 2, True), f.distinct(2, 3, 11))
f.case("max_pool1d_with_indices", lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), f.distinct(2, 3, 10))
f.case("max_pool2d", lambda x: F.max_pool2d(x, 2), f.distinct(2, 3, 5, 6))
f.case("max_pool2d/options", lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), (1, 2), True), f.distinct(2, 9, 8, 7))
f.case("max_pool2d/one", lambda x: F.max_pool2d(x, 1), f.distinct(1, 1, 1, 1))
f.case("max_pool2d_with_indices", lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), f.distinct(2, 3, 7, 8))
f.case("max_pool3d", lambda x: F.max_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), 1, True), f.distinct(1, 3, 4, 6, 5))
f.case("max_pool3d_with_indices", lambda x: F.max_pool3d(x, 2, return_indices=True), f.distinct(2, 2, 4, 4, 4))
f.case("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1, True, False), f.rand(2, 3, 10))
f.case("avg_pool2d", lambda x: F.avg_pool2d(x, 2), f.rand(2, 3, 4, 6))
f.case("avg_pool2d/options", lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), True, False), f.rand(2, 9, 6, 5))
f.case("avg_pool2d/padding", lambda x: F.avg_pool2d(x, 3, 2, 1, True, True), f.rand(2, 3, 6, 6))
f.case("avg_pool2d/divisor", lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=7), f.rand(2, 3, 6, 6))
f.case("avg_pool3d", lambda x: F.avg_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), True, False), f.rand(1, 3, 4, 6, 5))
f.case("avg_pool3d/divisor", lambda x: F.avg_pool3d(x, 2, divisor_override=3), f.rand(1, 3, 4, 6, 5))
f.case("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 3), f.rand(2, 3, 7))
f.case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 9)), f.rand(2, 3, 7, 5))
f.case("adaptive_avg_pool2d/global", lambda x: F.adaptive_avg_pool2d(x, 1), f.rand(2, 9, 7, 7))
f.case("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), f.rand(2, 3, 3, 7, 5))
f.case("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 3), f.distinct(2, 3, 7))
f.case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (3, 2)), f.distinct(2, 3, 7, 5))
f.case("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, (2, 3, 1)), f.distinct(2, 3, 3, 7, 5))
f.case("lp_pool1d", lambda x: F.lp_pool1d(x, 3.0, 3, 2), f.rand(2, 3, 8, lo=0.2))
f.case("lp_pool2d", lambda x: F.lp_pool2d(x, 2.0, (2, 3), 2, True), f.rand(2, 3, 7, 8, lo=0.2))


def unpooled(x):
    y, i = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(y, i, 2, output_size=x.shape[2:])


f.case("max_unpool", unpooled, f.distinct(2, 3, 4, 6))
f.save()
