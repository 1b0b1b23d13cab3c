#!/usr/bin/env python3
"""Convolution layers: python3 tests/nn/layers/conv.py. What the file holds: golden.py."""
import torch
from torch import nn

from golden import Family

f = Family("conv")
f.case("Conv1d", lambda: nn.Conv1d(2, 3, 2), f.rand(2, 2, 5))
f.case("Conv1d/options", lambda: nn.Conv1d(4, 2, 3, stride=2, padding=1, dilation=2, groups=2, bias=False), f.rand(2, 4, 8))
f.case("Conv1d/unbatched", lambda: nn.Conv1d(2, 3, 2), f.rand(2, 5))
f.case("Conv2d", lambda: nn.Conv2d(2, 3, 3), f.rand(2, 2, 5, 4))
f.case("Conv2d/options", lambda: nn.Conv2d(4, 2, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), f.rand(2, 4, 6, 5))
f.case("Conv2d/same", lambda: nn.Conv2d(2, 1, (2, 3), padding="same"), f.rand(1, 2, 4, 4))
f.case("Conv2d/reflect", lambda: nn.Conv2d(2, 1, 3, padding=(2, 1), padding_mode="reflect"), f.rand(1, 2, 4, 5))
f.case("Conv2d/replicate", lambda: nn.Conv2d(2, 1, 3, padding=2, padding_mode="replicate"), f.rand(1, 2, 2, 3))
f.case("Conv2d/circular", lambda: nn.Conv2d(2, 1, (2, 3), padding="same", padding_mode="circular"), f.rand(1, 2, 4, 4))
f.case("Conv3d", lambda: nn.Conv3d(2, 3, 2), f.rand(1, 2, 3, 4, 3))
f.case("Conv3d/options", lambda: nn.Conv3d(2, 2, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 1), groups=2), f.rand(1, 2, 2, 4, 3))
f.case("ConvTranspose1d", lambda: nn.ConvTranspose1d(2, 3, 2), f.rand(2, 2, 4))
f.case("ConvTranspose1d/options", lambda: nn.ConvTranspose1d(4, 2, 3, stride=2, padding=1, output_padding=1, groups=2, bias=False), f.rand(2, 4, 3))
f.case("ConvTranspose2d", lambda: nn.ConvTranspose2d(2, 3, 3), f.rand(2, 2, 3, 2))
f.case("ConvTranspose2d/options",
       lambda: nn.ConvTranspose2d(4, 2, (3, 2), stride=(2, 1), padding=(1, 0), output_padding=(1, 0), dilation=(1, 2), groups=2),
       f.rand(2, 4, 3, 3))
f.case("ConvTranspose2d/unbatched", lambda: nn.ConvTranspose2d(2, 1, 2, 2), f.rand(2, 3, 2))
f.case("ConvTranspose3d", lambda: nn.ConvTranspose3d(2, 3, 2, stride=2, output_padding=1), f.rand(1, 2, 2, 2, 1))
f.case("spectral_norm/ConvTranspose2d", lambda: nn.utils.spectral_norm(nn.ConvTranspose2d(2, 3, 2)), f.rand(1, 2, 2, 2))
f.save()
