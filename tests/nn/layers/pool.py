#!/usr/bin/env python3
"""Pooling layers: python3 tests/nn/layers/pool.py. What the file holds: golden.py."""
from torch import nn

from golden import Family

f = Family("pool")
signal, image, volume = f.distinct(2, 2, 7), f.distinct(2, 2, 5, 6), f.distinct(1, 2, 4, 3, 5)
f.case("MaxPool1d", lambda: nn.MaxPool1d(2), signal)
f.case("MaxPool1d/options", lambda: nn.MaxPool1d(3, stride=2, padding=1, dilation=2, ceil_mode=True), signal)
f.case("MaxPool2d", lambda: nn.MaxPool2d(2), image)
f.case("MaxPool2d/options", lambda: nn.MaxPool2d((3, 2), stride=(2, 1), padding=1, ceil_mode=True), image)
f.case("MaxPool2d/unbatched", lambda: nn.MaxPool2d(2), image[0])
f.case("MaxPool3d", lambda: nn.MaxPool3d((2, 1, 2), stride=1), volume)
f.case("AvgPool1d", lambda: nn.AvgPool1d(3, stride=2, padding=1, count_include_pad=False), signal)
f.case("AvgPool2d", lambda: nn.AvgPool2d(2), image)
f.case("AvgPool2d/options", lambda: nn.AvgPool2d((3, 2), stride=2, padding=1, ceil_mode=True, divisor_override=5), image)
f.case("AvgPool3d", lambda: nn.AvgPool3d(2, stride=(2, 1, 1), padding=(1, 0, 1)), volume)
f.case("LPPool1d", lambda: nn.LPPool1d(2, 3, stride=2), f.rand(2, 2, 7, lo=0.2))
f.case("LPPool2d", lambda: nn.LPPool2d(1.5, (2, 3)), f.rand(2, 2, 4, 6, lo=0.2))
f.case("AdaptiveAvgPool1d", lambda: nn.AdaptiveAvgPool1d(3), signal)
f.case("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d((2, 4)), image)
f.case("AdaptiveAvgPool3d", lambda: nn.AdaptiveAvgPool3d((3, 2, 1)), volume)
f.case("AdaptiveMaxPool1d", lambda: nn.AdaptiveMaxPool1d(3), signal)
f.case("AdaptiveMaxPool2d", lambda: nn.AdaptiveMaxPool2d((2, 4)), image)
f.case("AdaptiveMaxPool3d", lambda: nn.AdaptiveMaxPool3d((3, 2, 1)), volume)
f.case("AdaptiveMaxPool3d/unbatched", lambda: nn.AdaptiveMaxPool3d(2), volume[0])
f.save()
