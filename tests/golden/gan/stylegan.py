#!/usr/bin/env python3
"""StyleGAN's networks, in the paper's form and in mmgeneration's: python3 tests/golden/gan/stylegan.py. golden.py
(../../nn/layers) draws the parameters at random and writes the file.

Restated from the paper's and mmgeneration's descriptions (Karras et al., CVPR 2019)."""
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

import networks as n
from networks import Child, Equalized, lrelu

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "nn", "layers"))
from golden import Family


class EqualLinear(nn.Module):
    def __init__(self, a, b, gain=1.0, lr_mul=1.0, act=False):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(b))
        self.linear = Equalized("linear", a, b, gain=gain * lr_mul, bias=False)
        self.lr_mul, self.act = lr_mul, act

    def forward(self, x):
        y = self.linear(x) + self.bias * self.lr_mul
        return lrelu(y) if self.act else y


class PixelNorm(nn.Module):
    def __init__(self, mmgen):
        super().__init__()
        self.norm = n.pixel_norm_mmgen if mmgen else n.pixel_norm

    def forward(self, x):
        return self.norm(x)


class Blur(nn.Module):
    def __init__(self, saved):
        super().__init__()
        k = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("kernel", k[:, None] * k / 16, persistent=saved)

    def forward(self, x):
        c = x.shape[1]
        return F.conv2d(x, self.kernel.expand(c, 1, 3, 3), padding=1, groups=c)


class Constant(nn.Module):
    def __init__(self, channels, bias):
        super().__init__()
        self.input = nn.Parameter(torch.zeros(1, channels, 4, 4))
        if bias:
            self.bias = nn.Parameter(torch.zeros(channels))


class Noise(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels))

    def forward(self, x, noise):
        return x if noise is None else x + self.weight[:, None, None] * noise


class AdaIN(nn.Module):
    def __init__(self, channels, style, mmgen):
        super().__init__()
        self.affine = Equalized("linear", style, 2 * channels, gain=2**0.5 if mmgen else 1)
        self.eps, self.one = (1e-5, 0) if mmgen else (1e-8, 1)

    def forward(self, x, w):
        scale, shift = self.affine(w)[:, :, None, None].chunk(2, 1)
        centered = x - x.mean((2, 3), keepdim=True)
        deviation = torch.sqrt(centered.square().mean((2, 3), keepdim=True) + self.eps)
        return centered / deviation * (scale + self.one) + shift


class StyleBlock(nn.Module):
    def __init__(self, a, b, style, mmgen, saved):
        super().__init__()
        self.mmgen, self.first = mmgen, a is None
        if self.first:
            self.conv1 = Constant(b, not mmgen)
        else:
            self.conv1 = nn.Sequential(Child(Equalized("conv", a, b)), Blur(saved))
        strengths = 1 if mmgen else b
        self.noise_injector1, self.adain1 = Noise(strengths), AdaIN(b, style, mmgen)
        self.conv2 = Child(Equalized("conv", b, b))
        self.noise_injector2, self.adain2 = Noise(strengths), AdaIN(b, style, mmgen)

    def layer1(self, x, noise):
        if self.first:
            h = self.noise_injector1(self.conv1.input.repeat(len(x), 1, 1, 1), noise)
            return h if self.mmgen else h + self.conv1.bias[:, None, None]
        (up, blur), x = self.conv1, F.interpolate(x, scale_factor=2)
        if self.mmgen:
            return self.noise_injector1(blur(lrelu(up(x))), noise)
        h = F.conv2d(x, up.conv.weight_orig * up.conv.scale, padding=1)
        return self.noise_injector1(blur(h), noise) + up.conv.bias[:, None, None]

    def forward(self, x, w1, w2, noise1, noise2):
        h = self.adain1(lrelu(self.layer1(x, noise1)), w1)
        return self.adain2(lrelu(self.noise_injector2(self.conv2(h), noise2)), w2)


def channels_at(s, base, most):
    return min(base // 2**s, most)


class StyleGANGenerator(nn.Module):
    """saved: with mmgeneration's buffers, without the average of w."""

    def __init__(self, size, channels, latent, style, layers, base, most, mmgen=False, saved=False):
        super().__init__()
        self.last, self.mmgen = int(math.log2(size)), mmgen
        if not saved:
            self.register_buffer("w_avg", torch.randn(style))
        for i in range(2 * self.last - 2):
            self.register_buffer(f"injected_noise_{i}", torch.randn(1, 1, 4 << i // 2, 4 << i // 2))
        gain = 1 if mmgen else 2**0.5
        linear = lambda i: EqualLinear(style if i else latent, style, gain, 0.01, act=True)
        self.style_mapping = nn.Sequential(PixelNorm(mmgen), *map(linear, range(layers)))
        convs, rgb, before = [], [], None
        for s in range(1, self.last):
            now = channels_at(s, base, most)
            convs.append(StyleBlock(before, now, style, mmgen, saved))
            rgb.append(Child(Equalized("conv", now, channels, 1, gain=2**0.5 if mmgen else 1)))
            before = now
        self.convs, self.to_rgbs = nn.ModuleList(convs), nn.ModuleList(rgb)

    def mapping(self, z, truncation=1.0, cutoff=None):
        ws = self.style_mapping(z)[:, None].repeat(1, 2 * self.last - 2, 1)
        if truncation == 1:
            return ws
        cutoff = cutoff if cutoff is not None else ws.shape[1] if self.mmgen else 8
        moved = (torch.arange(ws.shape[1]) < cutoff)[:, None]
        return torch.where(moved, self.w_avg + truncation * (ws - self.w_avg), ws)

    def fixed_noise(self, size):
        return [getattr(self, f"injected_noise_{i}") for i in range(2 * int(math.log2(size)) - 2)]

    def synthesis(self, ws, size, fade, noise):
        last, h, before = int(math.log2(size)) - 2, ws, None
        for i in range(last + 1):
            before, h = h, self.convs[i](h, ws[:, 2 * i], ws[:, 2 * i + 1], noise[2 * i], noise[2 * i + 1])
        image = self.to_rgbs[last](h)
        if last == 0:
            return image
        return (1 - fade) * F.interpolate(self.to_rgbs[last - 1](before), scale_factor=2) + fade * image


class Conv4(nn.Module):
    """A 4x4 convolution without padding."""

    def __init__(self, a, b):
        super().__init__()
        self.conv = Equalized("conv", a, b, 4)

    def forward(self, x):
        return F.conv2d(x, self.conv.weight_orig * self.conv.scale, self.conv.bias)


class StyleGANDiscriminator(nn.Module):
    def __init__(self, size, channels, base, most, group=4, mmgen=False, saved=False):
        super().__init__()
        self.group, self.act = group, (lambda x: x) if mmgen else lrelu
        act, rgb, convs = nn.LeakyReLU(0.2), [], []
        for s in range(int(math.log2(size)) - 1, 0, -1):
            a, b = channels_at(s, base, most), channels_at(s - 1, base, most)
            rgb.append(Child(Equalized("conv", channels, a, 3 if mmgen else 1)))
            if s > 1:
                # In a Sequential of mmgeneration's indices the first activation is part of its convolution.
                first = Child(Equalized("conv", a, b if mmgen else a))
                first.register_forward_hook(lambda m, x, y: act(y))
                convs.append(nn.Sequential(first, Blur(saved), Child(Equalized("down", b if mmgen else a, b)), act))
            else:
                convs.append(nn.Sequential(Child(Equalized("conv", a + 1, a)), Conv4(a, b)))
        self.convs, self.from_rgb = nn.ModuleList(convs), nn.ModuleList(rgb)
        self.final_linear = nn.Sequential(EqualLinear(b, 1))

    def forward(self, x, fade=1.0):
        first = len(self.convs) - int(math.log2(x.shape[2])) + 1
        h = lrelu(self.from_rgb[first](x))
        for i in range(first, len(self.convs) - 1):
            h = self.convs[i](h)
            if i == first:
                h = (1 - fade) * lrelu(self.from_rgb[i + 1](F.avg_pool2d(x, 2))) + fade * h
        conv3, conv4 = self.convs[-1]
        h = self.act(conv4(lrelu(conv3(n.minibatch_stddev(h, self.group)))))
        return self.final_linear(h.flatten(1))


def r1(disc, x, fade):
    x = x.detach().requires_grad_()
    g, = torch.autograd.grad(disc(x, fade).sum(), x, create_graph=True)
    return g.square().flatten(1).sum(1).mean()


def path(gen, z, y, noise):
    """The squared length of the gradient of sum(image y) for the styles."""
    ws = gen.mapping(z)
    g, = torch.autograd.grad((gen.synthesis(ws, 8, 0.25, noise) * y).sum(), ws, create_graph=True)
    return g.square().sum()


def main():
    f = Family("stylegan", HERE)
    planes = lambda size, batch: [f.rand(batch if i % 3 else 1, 1, 4 << i // 2, 4 << i // 2)
                                  for i in range(2 * int(math.log2(size)) - 2)]
    for form, mmgen in (("", False), ("/mmgen", True)):
        one = lambda name, *args, **how: f.case(name, *args, modes=("train",), **how)
        gen = lambda size: lambda: StyleGANGenerator(size, 3, 3, 4, 2, 8, 4, mmgen)
        disc = lambda size, group: lambda: StyleGANDiscriminator(size, 3, 8, 4, group, mmgen)
        name = f"StyleGANGenerator{form}"
        one(f"{name}/mapping", gen(8), f.rand(2, 3),
            call=lambda g, z: (g.mapping(z), g.mapping(z, 0.7), g.mapping(z, -0.5, 1)))
        one(f"{name}/noise", gen(8), f.rand(2, 4, 4),
            call=lambda g, ws: (g.synthesis(ws, 8, 1, g.fixed_noise(8)), g.synthesis(ws, 4, 1, [None] * 2)))
        one(f"{name}/path", gen(8), f.rand(2, 3), f.rand(2, 3, 8, 8), *planes(8, 2),
            call=lambda g, z, y, *noise: path(g, z, y, noise))
        for largest, size, fade in ((4, 4, 1), (16, 8, 0.25), (16, 16, 0.7)):
            one(f"{name}/{size}/{fade}", gen(largest), f.rand(2, 2 * int(math.log2(largest)) - 2, 4), *planes(size, 2),
                call=lambda g, ws, *noise: g.synthesis(ws, size, fade, noise))
        name = f"StyleGANDiscriminator{form}"
        for largest, size, fade in ((4, 4, 1), (16, 8, 0.25), (16, 16, 0.7)):
            one(f"{name}/{size}/{fade}", disc(largest, 4), f.rand(4, 3, size, size), call=lambda d, x: d(x, fade))
        one(f"{name}/r1", disc(8, 2), f.rand(4, 3, 8, 8), call=lambda d, x: r1(d, x, 0.7))
    f.save()


if __name__ == "__main__":
    main()
