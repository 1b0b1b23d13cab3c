#!/usr/bin/env python3
"""Normalization layers: python3 tests/nn/layers/norm.py. What the file holds: golden.py."""
import torch
from torch import nn

from golden import Family

f = Family("norm")
f.case("BatchNorm1d", lambda: nn.BatchNorm1d(3), f.rand(4, 3))
f.case("BatchNorm1d/signal", lambda: nn.BatchNorm1d(3, eps=1e-3, momentum=None), f.rand(2, 3, 4))
f.case("BatchNorm1d/plain", lambda: nn.BatchNorm1d(3, affine=False, track_running_stats=False), f.rand(4, 3))
f.case("BatchNorm2d", lambda: nn.BatchNorm2d(3), f.rand(2, 3, 4, 2))
f.case("BatchNorm2d/momentum", lambda: nn.BatchNorm2d(3, momentum=0.3), f.rand(2, 3, 4, 2), call=lambda m, x: [m(x), m(2 * x)])
f.case("BatchNorm3d", lambda: nn.BatchNorm3d(3), f.rand(2, 3, 2, 3, 2))
f.case("LayerNorm", lambda: nn.LayerNorm(5), f.rand(2, 3, 5))
f.case("LayerNorm/two", lambda: nn.LayerNorm((3, 4), eps=1e-3), f.rand(2, 3, 4))
f.case("LayerNorm/plain", lambda: nn.LayerNorm(5, elementwise_affine=False), f.rand(2, 5))
f.case("GroupNorm", lambda: nn.GroupNorm(2, 4), f.rand(2, 4, 3, 2))
f.case("GroupNorm/plain", lambda: nn.GroupNorm(1, 4, affine=False), f.rand(2, 4, 3))
f.case("InstanceNorm1d", lambda: nn.InstanceNorm1d(3), f.rand(2, 3, 5))
f.case("InstanceNorm1d/unbatched", lambda: nn.InstanceNorm1d(3, affine=True), f.rand(3, 5))
f.case("InstanceNorm2d", lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), f.rand(2, 3, 4, 2))
f.case("InstanceNorm3d", lambda: nn.InstanceNorm3d(2, momentum=0.4, track_running_stats=True), f.rand(2, 2, 2, 3, 2))
f.case("LocalResponseNorm", lambda: nn.LocalResponseNorm(3, alpha=0.1, beta=0.6, k=2), f.rand(2, 5, 3, 2))
f.case("LocalResponseNorm/even", lambda: nn.LocalResponseNorm(2), f.rand(2, 4, 3))
f.case("AlphaDropout", lambda: nn.AlphaDropout(0.3), f.rand(2, 3), modes=("eval",))
f.case("FeatureAlphaDropout", lambda: nn.FeatureAlphaDropout(0.3), f.rand(2, 3), modes=("eval",))
f.case("Dropout1d", lambda: nn.Dropout1d(0.3), f.rand(2, 3, 2), modes=("eval",))
f.case("Dropout2d", lambda: nn.Dropout2d(0), f.rand(2, 3, 2, 2))
f.case("Dropout3d", lambda: nn.Dropout3d(0), f.rand(2, 3, 2, 2, 1))


class RMSNorm(nn.Module):
    """As torch.nn's, which PyTorch 1.13 does not have yet."""

    def __init__(self, size, eps=None, affine=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size)) if affine else None

    def forward(self, x):
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        return y if self.weight is None else y * self.weight


f.case("RMSNorm", lambda: RMSNorm(5), f.rand(2, 3, 5))
f.case("RMSNorm/plain", lambda: RMSNorm(5, eps=1e-3, affine=False), f.rand(2, 5))
f.save()
