#!/usr/bin/env python3
"""Blocks of GANs: python3 tests/nn/layers/gan_blocks.py. What the file holds: golden.py.

Karras et al., ICLR 2018 (pixel norm, convolutions that resample), CVPR 2019 (noise, adaptive instance norm), CVPR 2020
(filters, bias with leaky relu)."""
import torch
from torch import nn
from torch.nn import functional as F

from golden import Family

f = Family("gan_blocks")


class PixelNorm(nn.Module):
    def forward(self, x):
        return x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1e-8)


f.case("PixelNorm/images", PixelNorm, f.rand(2, 3, 2, 2))
f.case("PixelNorm/latents", PixelNorm, f.rand(2, 5))


class UpConv2d(nn.Module):
    def __init__(self, cin, cout, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(cin, cout, 3, 3))
        if bias:
            self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x):
        w = self.weight.transpose(0, 1).flip(2, 3)
        return F.conv2d(F.interpolate(x, scale_factor=2), w, getattr(self, "bias", None), padding=1)


class DownConv2d(nn.Module):
    def __init__(self, cin, cout, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(cout, cin, 3, 3))
        if bias:
            self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x):
        return F.avg_pool2d(F.conv2d(x, self.weight, getattr(self, "bias", None), padding=1), 2)


f.case("UpConv2d", lambda: UpConv2d(2, 3), f.rand(2, 2, 3, 4))
f.case("UpConv2d/bias", lambda: UpConv2d(3, 2, False), f.rand(1, 3, 2, 2))
f.case("DownConv2d", lambda: DownConv2d(2, 3), f.rand(2, 2, 4, 6))
f.case("DownConv2d/bias", lambda: DownConv2d(3, 2, False), f.rand(1, 3, 2, 4))


class Equalized(nn.Module):
    """weight_orig gain lr_mul / sqrt(fan), bias lr_mul."""

    def __init__(self, shape, outputs, op, scale, lr_mul):
        super().__init__()
        self.weight_orig, self.bias = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(outputs))
        self.op, self.scale, self.lr_mul = op, scale, lr_mul

    def forward(self, x):
        return self.op(x, self.weight_orig * self.scale, self.bias * self.lr_mul)


f.case("equalized_lr/lr_mul", lambda: Equalized((4, 3), 4, F.linear, 2**0.5 * 0.01 / 3**0.5, 0.01), f.rand(2, 3))
f.case("equalized_lr/ConvTranspose2d",
       lambda: Equalized((3, 2, 2, 2), 2, F.conv_transpose2d, 0.5 / 12**0.5, 0.5), f.rand(1, 3, 2, 2))


class FirFilter2d(nn.Module):
    def __init__(self, taps, up, down, before, behind, gain):
        super().__init__()
        k = torch.tensor(taps, dtype=torch.float64)
        self.k, self.up, self.down, self.padding, self.gain = k / k.sum(), up, down, (before, behind) * 2, gain

    def forward(self, x):
        n, c, h, w = x.shape
        y = x.new_zeros(n, c, h * self.up, w * self.up)
        y[:, :, :: self.up, :: self.up] = x
        k = self.k.to(x.dtype).flip(0)
        k = (torch.outer(k, k) * self.gain).repeat(c, 1, 1, 1)
        return F.conv2d(F.pad(y, self.padding), k, groups=c)[:, :, :: self.down, :: self.down]


f.case("FirFilter2d/blur", lambda: FirFilter2d([1, 2, 1], 1, 1, 1, 1, 1), f.rand(2, 2, 3, 4))
f.case("FirFilter2d/up", lambda: FirFilter2d([1, 3, 3, 1], 2, 1, 2, 1, 4), f.rand(1, 2, 3, 2))
f.case("FirFilter2d/down", lambda: FirFilter2d([1, 3, 3, 1], 1, 2, 1, 1, 1), f.rand(1, 2, 4, 6))
f.case("FirFilter2d/uneven", lambda: FirFilter2d([1, 2, 4], 3, 2, 0, 3, 2), f.rand(1, 1, 3, 3))


class NoiseInjection(nn.Module):
    def __init__(self, h, w, channels=1):
        super().__init__()
        self.strength = nn.Parameter(torch.zeros(channels))
        self.register_buffer("noise_const", f.rand(1, 1, h, w))

    def forward(self, x):
        return x + self.strength.reshape(1, -1, 1, 1) * self.noise_const


f.case("NoiseInjection", lambda: NoiseInjection(2, 3), f.rand(2, 2, 2, 3))
f.case("NoiseInjection/channels", lambda: NoiseInjection(2, 2, 3), f.rand(1, 3, 2, 2))


class BiasLeakyReLU(nn.Module):
    def __init__(self, channels, slope=0.2, gain=2**0.5, lr_mul=1, clamp=None):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.slope, self.gain, self.lr_mul, self.clamp = slope, gain, lr_mul, clamp

    def forward(self, x):
        b = (self.bias * self.lr_mul).reshape([1, -1] + [1] * (x.dim() - 2))
        y = F.leaky_relu(x + b, self.slope) * self.gain
        return y if self.clamp is None else y.clamp(-self.clamp, self.clamp)


f.case("BiasLeakyReLU", lambda: BiasLeakyReLU(3), f.rand(2, 3, 2, 2))
f.case("BiasLeakyReLU/clamp", lambda: BiasLeakyReLU(4, 0.1, 2, 0.5, 1), f.rand(3, 4))


class AdaptiveInstanceNorm(nn.Module):
    def __init__(self, channels, style, eps=1e-8, gain=1, one=1):
        super().__init__()
        self.affine = nn.Module()
        self.affine.bias = nn.Parameter(torch.zeros(2 * channels))
        self.affine.weight_orig = nn.Parameter(torch.zeros(2 * channels, style))
        self.scale, self.eps, self.one = gain * style**-0.5, eps, one

    def forward(self, x, w):
        s = F.linear(w, self.affine.weight_orig * self.scale, self.affine.bias).reshape(len(x), 2, -1, 1, 1)
        return F.instance_norm(x, eps=self.eps) * (s[:, 0] + self.one) + s[:, 1]


f.case("AdaptiveInstanceNorm", lambda: AdaptiveInstanceNorm(3, 4), f.rand(2, 3, 3, 2), f.rand(2, 4))
f.case("AdaptiveInstanceNorm/mmgen", lambda: AdaptiveInstanceNorm(3, 4, 1e-5, 2**0.5, 0), f.rand(2, 3, 3, 2), f.rand(2, 4))
f.save()
