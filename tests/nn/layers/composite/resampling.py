#!/usr/bin/env python3
"""Unpooling, random pooling, circular padding, upsampling: python3 tests/nn/layers/composite/resampling.py. What the file holds: ../golden.py."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from golden import Family

f = Family("resampling", HERE)
once = ("train",)
f.case("LPPool3d", lambda: nn.LPPool3d(3.0, 2, (1, 2, 1)), f.rand(1, 2, 3, 4, 3, lo=0.2), modes=once)
f.case("LPPool3d/ceil", lambda: nn.LPPool3d(2, (2, 1, 3), ceil_mode=True), f.rand(2, 3, 4, 5, lo=0.2), modes=once)
f.case("CircularPad1d", lambda: nn.CircularPad1d((2, 1)), f.rand(2, 2, 4), modes=once)
f.case("CircularPad2d", lambda: nn.CircularPad2d((1, 2, 3, 0)), f.rand(1, 2, 3, 4), modes=once)
f.case("CircularPad3d", lambda: nn.CircularPad3d(1), f.rand(1, 2, 2, 3, 2), modes=once)
f.case("UpsamplingNearest2d", lambda: nn.UpsamplingNearest2d(size=(5, 4)), f.rand(1, 2, 3, 2), modes=once)
f.case("UpsamplingBilinear2d", lambda: nn.UpsamplingBilinear2d(scale_factor=2), f.rand(1, 2, 3, 2), modes=once)


def unpool(pool, layer, *size):
    def call(m, x):
        y, indices = pool(x)
        return m(y, indices, *size)
    return lambda name, x: f.case(name, lambda: layer, x, modes=once, call=call)


unpool(nn.MaxPool1d(2, return_indices=True), nn.MaxUnpool1d(2))("MaxUnpool1d", f.distinct(2, 2, 6))
unpool(nn.MaxPool2d(3, 2, 1, return_indices=True), nn.MaxUnpool2d(3, 2, 1), (5, 6))("MaxUnpool2d", f.distinct(1, 2, 5, 6))
unpool(nn.MaxPool3d((2, 1, 2), return_indices=True), nn.MaxUnpool3d((2, 1, 2)))("MaxUnpool3d", f.distinct(2, 2, 3, 4))


def fractional(name, op, shape, samples, *args, **options):
    """Values and indices for these random samples."""
    def call(_, x, u):
        return op(x, *args, return_indices=True, _random_samples=u.detach(), **options)
    f.case(name, nn.Identity, f.distinct(*shape), f.rand(*samples, lo=0, hi=0.99), modes=once, call=call)


fractional("FractionalMaxPool2d", F.fractional_max_pool2d, (2, 3, 7, 9), (2, 3, 2), (2, 3), (4, 5))
fractional("FractionalMaxPool2d/ratio", F.fractional_max_pool2d, (2, 11, 8), (1, 2, 2), 2, output_ratio=(0.6, 0.5))
fractional("FractionalMaxPool2d/one", F.fractional_max_pool2d, (1, 2, 5, 5), (1, 2, 2), 3, output_size=(1, 3))
fractional("FractionalMaxPool3d", F.fractional_max_pool3d, (2, 2, 5, 6, 7), (2, 2, 3), (2, 1, 3), (3, 4, 3))
fractional("FractionalMaxPool3d/ratio", F.fractional_max_pool3d, (2, 6, 6, 6), (1, 2, 3), 2, output_ratio=0.5)
unpool(nn.MaxPool2d((3, 2), 2, (1, 0), return_indices=True), nn.MaxUnpool2d((3, 2), 2, (1, 0)))("MaxUnpool2d/padding", f.distinct(2, 5, 4))
f.save()
