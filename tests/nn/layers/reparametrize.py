#!/usr/bin/env python3
"""Spectral and weight normalization: python3 tests/nn/layers/reparametrize.py. What the file holds: golden.py."""
import torch
from torch import nn
from torch.nn.utils import spectral_norm, weight_norm

from golden import Family

f = Family("reparametrize")
f.case("spectral_norm/Linear", lambda: spectral_norm(nn.Linear(3, 4)), f.rand(2, 3))
f.case("spectral_norm/three", lambda: spectral_norm(nn.Linear(3, 4, bias=False), n_power_iterations=3, eps=1e-3), f.rand(2, 3))
f.case("spectral_norm/dim", lambda: spectral_norm(nn.Linear(3, 4), dim=1), f.rand(2, 3))
f.case("spectral_norm/Conv2d", lambda: spectral_norm(nn.Conv2d(2, 3, (2, 3))), f.rand(2, 2, 4, 4))
f.case("spectral_norm/twice", lambda: spectral_norm(nn.Linear(3, 4)), f.rand(2, 3), call=lambda m, x: [m(x), m(2 * x)])
f.case("weight_norm/Linear", lambda: weight_norm(nn.Linear(3, 4)), f.rand(2, 3))
f.case("weight_norm/all", lambda: weight_norm(nn.Linear(3, 4, bias=False), dim=None), f.rand(2, 3))
f.case("weight_norm/Conv2d", lambda: weight_norm(nn.Conv2d(2, 3, 2), dim=1), f.rand(2, 2, 4, 4))


class EqualizedLR(nn.Module):
    """weight_orig times gain lr_mul / sqrt(fan): Karras et al. 2018."""

    def __init__(self, layer, fan, gain=2**0.5, lr_mul=1.0):
        super().__init__()
        self.kind, self.scale, self.options = type(layer), gain * lr_mul / fan**0.5, {}
        self.bias, self.weight_orig = layer.bias, nn.Parameter(layer.weight.detach())
        if self.kind is nn.Conv2d:
            self.options = {"stride": layer.stride, "padding": layer.padding}

    def forward(self, x):
        op = nn.functional.conv2d if self.kind is nn.Conv2d else nn.functional.linear
        return op(x, self.weight_orig * self.scale, self.bias, **self.options)


f.case("equalized_lr/Linear", lambda: EqualizedLR(nn.Linear(3, 4), 3), f.rand(2, 3))
f.case("equalized_lr/fan_out", lambda: EqualizedLR(nn.Linear(3, 4), 4, gain=1, lr_mul=0.01), f.rand(2, 3))
f.case("equalized_lr/Conv2d", lambda: EqualizedLR(nn.Conv2d(2, 3, 3, 2, 1), 18), f.rand(2, 2, 5, 5))


class MinibatchStdDev(nn.Module):
    def __init__(self, group_size, channel_groups=1):
        super().__init__()
        self.group_size, self.channel_groups = group_size, channel_groups

    def forward(self, x):
        n, c, h, w = x.shape
        g = min(n, self.group_size)
        y = x.reshape(g, -1, self.channel_groups, c // self.channel_groups, h, w)
        y = (y - y.mean(0)).pow(2).mean(0)
        y = (y + 1e-8).sqrt().mean((2, 3, 4), keepdim=True).squeeze(2)
        return torch.cat([x, y.repeat(g, 1, h, w)], 1)


f.case("MinibatchStdDev", lambda: MinibatchStdDev(4), f.rand(4, 2, 2, 3))
f.case("MinibatchStdDev/groups", lambda: MinibatchStdDev(2, 2), f.rand(6, 4, 2, 2))
f.save()
