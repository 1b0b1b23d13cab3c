#!/usr/bin/env python3
"""Networks of GANs: python3 tests/golden/gan/networks.py. golden.py (../../nn/layers) draws the parameters
at random and writes the file.

Restated from the papers' and mmgeneration's descriptions: DCGAN (Radford et al., ICLR 2016), LSGAN (Mao et al., ICCV
2017), WGAN-GP (Gulrajani et al., NeurIPS 2017; the small networks: its gan_mnist.py and gan_cifar.py), PGGAN (Karras et
al., ICLR 2018)."""
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "nn", "layers"))
from golden import Family


def column(z):
    return z.reshape(len(z), -1, 1, 1)


def one_hot(labels, like, classes):
    return F.one_hot(labels, classes).to(like.dtype)


class Images(nn.Module):
    """A stack of layers, called "main"; labels as planes."""

    def __init__(self, *layers, classes=0):
        super().__init__()
        self.main, self.classes = nn.Sequential(*layers), classes

    def forward(self, x, labels=None):
        if labels is not None:
            planes = one_hot(labels, x, self.classes)[:, :, None, None].expand(-1, -1, *x.shape[2:])
            x = torch.cat([x, planes], 1)
        return self.main(x).flatten(1)


class Vectors(Images):
    """The same for latent vectors, with one-hot labels appended."""

    def forward(self, z, labels=None):
        if labels is not None:
            z = torch.cat([z, one_hot(labels, z, self.classes)], 1)
        return self.main(column(z))


def dcgan_generator(size, channels, width, latent, classes=0, bias=False):
    n = int(math.log2(size // 8))
    widths = [width * 2 ** (n - i) for i in range(n + 1)]
    layers = [nn.ConvTranspose2d(latent + classes, widths[0], 4, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    for a, b in zip(widths, widths[1:]):
        layers += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    return Vectors(*layers, nn.ConvTranspose2d(width, channels, 4, 2, 1, bias=bias), nn.Tanh(), classes=classes)


def dcgan_discriminator(size, channels, width, outputs=1, classes=0, slope=0.2, bias=False):
    n = int(math.log2(size // 8))
    layers = [nn.Conv2d(channels + classes, width, 4, 2, 1, bias=bias), nn.LeakyReLU(slope)]
    for i in range(n):
        a = width * 2**i
        layers += [nn.Conv2d(a, 2 * a, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * a), nn.LeakyReLU(slope)]
    return Images(*layers, nn.Conv2d(width * 2**n, outputs, 4, bias=bias), classes=classes)


class ConvBlock(nn.Module):
    def __init__(self, conv, act, **norm):
        super().__init__()
        self.conv, self.act = conv, act
        for name, layer in norm.items():
            self.add_module(name, layer)
        self.norms = list(norm)

    def forward(self, x):
        x = self.conv(x)
        for name in self.norms:
            x = getattr(self, name)(x)
        return self.act(x)


def block(conv, out, act):
    return ConvBlock(conv, act, bn=nn.BatchNorm2d(out))


class LSGANGenerator(nn.Module):
    def __init__(self, size, channels, width, latent):
        super().__init__()
        self.width = width
        self.noise2feat_head = nn.Sequential(nn.Linear(latent, 64 * width))
        self.noise2feat_tail = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU())
        up = lambda a, b: block(nn.ConvTranspose2d(a, b, 3, 2, 1, 1, bias=False), b, nn.ReLU())
        same = lambda a: block(nn.ConvTranspose2d(a, a, 3, 1, 1, bias=False), a, nn.ReLU())
        blocks = []
        for _ in range(int(math.log2(size // 8)) - 2):
            blocks += [up(width, width), same(width)]
        blocks += [up(width, width // 2), up(width // 2, width // 4),
                   ConvBlock(nn.ConvTranspose2d(width // 4, channels, 3, 1, 1), nn.Tanh())]
        self.conv_blocks = nn.ModuleList(blocks)

    def forward(self, z):
        x = self.noise2feat_tail(self.noise2feat_head(z).reshape(len(z), self.width, 8, 8))
        for b in self.conv_blocks:
            x = b(x)
        return x


class LSGANDiscriminator(nn.Module):
    def __init__(self, size, channels, width):
        super().__init__()
        act = nn.LeakyReLU(0.2)
        blocks, a = [ConvBlock(nn.Conv2d(channels, width, 5, 2, 2), act)], width
        while size > 16:
            blocks.append(block(nn.Conv2d(a, 2 * a, 5, 2, 2, bias=False), 2 * a, act))
            a, size = 2 * a, size // 2
        self.conv_blocks, self.decision = nn.ModuleList(blocks), nn.Sequential(nn.Linear(64 * a, 1))

    def forward(self, x):
        for b in self.conv_blocks:
            x = b(x)
        return self.decision(x.flatten(1))


class Noise2Feat(nn.Module):
    def __init__(self, latent, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.linear = nn.Linear(latent, 16 * channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, z):
        return self.norm(F.relu(self.linear(z).reshape(len(z), -1, 4, 4) + self.bias))


class WGANGPGenerator(nn.Module):
    def __init__(self, size, channels, latent, base, most):
        super().__init__()
        at = lambda p: min(base // p, most)
        conv = lambda a, b: block(nn.Conv2d(a, b, 3, 1, 1), b, nn.ReLU())
        self.noise2feat = Noise2Feat(latent, at(4))
        blocks, p = [conv(at(4), at(4))], 8
        while p <= size:
            blocks += [nn.Upsample(scale_factor=2), conv(at(p // 2), at(p)), conv(at(p), at(p))]
            p *= 2
        self.conv_blocks = nn.ModuleList(blocks)
        self.to_rgb = ConvBlock(nn.Conv2d(at(size), channels, 1), nn.Tanh())

    def forward(self, z):
        x = self.noise2feat(z)
        for b in self.conv_blocks:
            x = b(x)
        return self.to_rgb(x)


class WGANGPDiscriminator(nn.Module):
    def __init__(self, size, channels, base, most, norm):
        super().__init__()
        act, at = nn.LeakyReLU(0.2), lambda p: min(base // p, most)
        norms = {"GN": lambda c, p: {"GN": nn.GroupNorm(1, c)}, "LN2d": lambda c, p: {"LN2d": nn.LayerNorm([c, p, p])}}
        conv = lambda a, b, p: ConvBlock(nn.Conv2d(a, b, 3, 1, 1), act, **norms[norm](b, p))
        self.from_rgb = ConvBlock(nn.Conv2d(channels, at(size), 1), act)
        blocks, p = [], size
        while p > 4:
            blocks += [conv(at(p), at(p), p), conv(at(p), at(p // 2), p), nn.AvgPool2d(2)]
            p //= 2
        self.conv_blocks = nn.ModuleList(blocks)
        self.decision = nn.Module()
        self.decision.conv = ConvBlock(nn.Conv2d(at(4), at(4), 4), act, **norms[norm](at(4), 1))
        self.decision.linear = nn.Linear(at(4), 1)

    def forward(self, x):
        x = self.from_rgb(x)
        for b in self.conv_blocks:
            x = b(x)
        return self.decision.linear(self.decision.conv(x).flatten(1))


class SmallGenerator(nn.Module):
    def __init__(self, size, channels, latent, width, norm, out):
        super().__init__()
        bn = lambda layer: [layer] if norm else []
        deconv = lambda a, b: nn.ConvTranspose2d(a, b, 5, 2, 2, 1)
        self.size, self.out = size, out
        self.input = nn.Sequential(nn.Linear(latent, 64 * width), *bn(nn.BatchNorm1d(64 * width)), nn.ReLU())
        self.deconv1 = nn.Sequential(deconv(4 * width, 2 * width), *bn(nn.BatchNorm2d(2 * width)), nn.ReLU())
        self.deconv2 = nn.Sequential(deconv(2 * width, width), *bn(nn.BatchNorm2d(width)), nn.ReLU())
        self.deconv3 = nn.Sequential(deconv(width, channels))

    def forward(self, z):
        x = self.deconv1(self.input(z).reshape(len(z), -1, 4, 4))
        if self.size == 28:
            x = x[:, :, :7, :7]
        return self.out(self.deconv3(self.deconv2(x)))


def small_discriminator(channels, width):
    layers, a, b = [], channels, width
    while b <= 4 * width:
        layers += [nn.Conv2d(a, b, 5, 2, 2), nn.LeakyReLU(0.2)]
        a, b = b, 2 * b
    return Images(*layers, nn.Flatten(), nn.Linear(64 * width, 1))


class Equalized(nn.Module):
    """weight_orig times gain / sqrt(fan), for a convolution, one that resamples by 2, or a linear layer."""

    def __init__(self, kind, a, b, kernel=3, gain=2**0.5, fan=None, bias=True):
        super().__init__()
        shape = {"linear": (b, a), "up": (a, b, 3, 3)}.get(kind, (b, a, kernel, kernel))
        if bias:
            self.bias = nn.Parameter(torch.zeros(b))
        self.weight_orig = nn.Parameter(torch.zeros(shape))
        self.kind, self.scale = kind, gain / math.sqrt(fan or a * (1 if kind == "linear" else kernel * kernel))

    def forward(self, x):
        w, b = self.weight_orig * self.scale, getattr(self, "bias", None)
        if self.kind == "linear":
            return F.linear(x, w, b)
        if self.kind == "up":
            return F.conv2d(F.interpolate(x, scale_factor=2), w.transpose(0, 1).flip(2, 3), b, padding=1)
        y = F.conv2d(x, w, b, padding=w.shape[2] // 2)
        return F.avg_pool2d(y, 2) if self.kind == "down" else y


def pixel_norm(x):
    return x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1e-8)


def pixel_norm_mmgen(x):
    return x / (torch.linalg.norm(x, dim=1, keepdim=True) / math.sqrt(x.shape[1]) + 1e-6)


def lrelu(x):
    return F.leaky_relu(x, 0.2)


class Child(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x):
        return self.conv(x)


class PGGANGenerator(nn.Module):
    def __init__(self, size, channels, latent, classes, base, decay, most, mmgen):
        super().__init__()
        at = lambda s: min(int(base / 2 ** (s * decay)), most)
        self.pn, self.last, self.classes = pixel_norm_mmgen if mmgen else pixel_norm, int(math.log2(size)), classes
        self.noise2feat = nn.Module()
        self.noise2feat.bias = nn.Parameter(torch.zeros(1, at(1), 1, 1))
        self.noise2feat.linear = Equalized("linear", latent + classes, 16 * at(1), gain=2**0.5 / 4, bias=False)
        rgb, blocks = [], []
        for s in range(2, self.last + 1):
            rgb.append(Child(Equalized("conv", at(s - 1), channels, 1, gain=1)))
            if s > 2:
                fan = 9 * at(s - 1) if mmgen else None
                blocks.append(Child(Equalized("up", at(s - 2), at(s - 1), fan=fan)))
            blocks.append(Child(Equalized("conv", at(s - 1), at(s - 1))))
        self.torgb_layers, self.conv_blocks = nn.ModuleList(rgb), nn.ModuleList(blocks)

    def forward(self, z, labels=None, size=0, fade=1.0):
        if labels is not None:
            z = torch.cat([z, one_hot(labels, z, self.classes)], 1)
        last = int(math.log2(size)) if size else self.last
        x = self.noise2feat.linear(self.pn(z)).reshape(len(z), -1, 4, 4)
        x = self.pn(lrelu(x + self.noise2feat.bias))
        x = before = self.pn(lrelu(self.conv_blocks[0](x)))
        for s in range(3, last + 1):
            before = x
            x = self.pn(lrelu(self.conv_blocks[2 * s - 5](x)))
            x = self.pn(lrelu(self.conv_blocks[2 * s - 4](x)))
        image = self.torgb_layers[last - 2](x)
        if last == 2:
            return image
        return (1 - fade) * F.interpolate(self.torgb_layers[last - 3](before), scale_factor=2) + fade * image


def minibatch_stddev(x, group):
    g = min(group, len(x))
    y = x.reshape(g, -1, *x.shape[1:])
    s = torch.sqrt(y.var(0, unbiased=False) + 1e-8).mean((1, 2, 3))
    return torch.cat([x, s.repeat(g).reshape(-1, 1, 1, 1).expand(-1, 1, *x.shape[2:])], 1)


class PGGANDiscriminator(nn.Module):
    def __init__(self, size, channels, classes, base, decay, most, group, mmgen):
        super().__init__()
        at = lambda s: min(int(base / 2 ** (s * decay)), most)
        self.group, self.mmgen, self.last = group, mmgen, int(math.log2(size))
        rgb, blocks = [], []
        for s in range(2, self.last + 1):
            rgb.append(Child(Equalized("conv", channels, at(s - 1), 1)))
            if s == 2:
                blocks.append(Child(Equalized("conv", at(1) + (not mmgen), at(1))))
            else:
                blocks.append(Child(Equalized("conv", at(s - 1), at(s - 1))))
                blocks.append(Child(Equalized("down", at(s - 1), at(s - 2))))
        self.conv_blocks, self.fromrgb_layers = nn.ModuleList(blocks), nn.ModuleList(rgb)
        self.decision = nn.Module()
        self.decision.linear0 = Equalized("linear", 16 * (at(1) + mmgen), at(0))
        self.decision.linear1 = Equalized("linear", at(0), 1 + classes, gain=1)

    def forward(self, x, fade=1.0):
        first = int(math.log2(x.shape[2]))
        h = lrelu(self.fromrgb_layers[first - 2](x))
        for s in range(first, 2, -1):
            h = lrelu(self.conv_blocks[2 * s - 5](h))
            h = lrelu(self.conv_blocks[2 * s - 4](h))
            if s == first:
                h = (1 - fade) * lrelu(self.fromrgb_layers[s - 3](F.avg_pool2d(x, 2))) + fade * h
        h = minibatch_stddev(h, self.group)
        if not self.mmgen:
            h = lrelu(self.conv_blocks[0](h))
        return self.decision.linear1(lrelu(self.decision.linear0(h.flatten(1))))


def main():
    f = Family("networks", HERE)
    f.case("DCGANGenerator", lambda: dcgan_generator(16, 3, 2, 5), f.rand(3, 5))
    f.case("DCGANGenerator/8", lambda: dcgan_generator(8, 1, 3, 4), f.rand(2, 4, 1, 1))
    f.case("DCGANGenerator/mmgen", lambda: dcgan_generator(16, 1, 2, 5, bias=True), f.rand(3, 5))
    f.case("DCGANGenerator/labels", lambda: dcgan_generator(16, 1, 2, 5, classes=3), f.rand(3, 5), f.ints(3, below=3))
    f.case("DCGANDiscriminator", lambda: dcgan_discriminator(16, 3, 2), f.rand(3, 3, 16, 16))
    f.case("DCGANDiscriminator/mmgen", lambda: dcgan_discriminator(32, 1, 2, outputs=3, slope=0.01, bias=True),
           f.rand(2, 1, 32, 32))
    f.case("DCGANDiscriminator/labels", lambda: dcgan_discriminator(16, 1, 2, classes=3), f.rand(3, 1, 16, 16),
           f.ints(3, below=3))

    f.case("LSGANGenerator", lambda: LSGANGenerator(32, 1, 4, 3), f.rand(2, 3))
    f.case("LSGANGenerator/64", lambda: LSGANGenerator(64, 1, 4, 2), f.rand(1, 2), modes=("train",))
    f.case("LSGANDiscriminator", lambda: LSGANDiscriminator(32, 2, 2), f.rand(2, 2, 32, 32))
    f.case("LSGANDiscriminator/64", lambda: LSGANDiscriminator(64, 1, 1), f.rand(1, 1, 64, 64), modes=("train",))

    f.case("WGANGPGenerator", lambda: WGANGPGenerator(16, 3, 5, 32, 4), f.rand(3, 5))
    f.case("WGANGPGenerator/8", lambda: WGANGPGenerator(8, 1, 3, 16, 8), f.rand(2, 3))
    f.case("WGANGPDiscriminator", lambda: WGANGPDiscriminator(16, 3, 32, 4, "GN"), f.rand(2, 3, 16, 16),
           modes=("train",))
    f.case("WGANGPDiscriminator/LN2d", lambda: WGANGPDiscriminator(8, 1, 32, 4, "LN2d"), f.rand(2, 1, 8, 8),
           modes=("train",))
    f.case("WGANGPSmallGenerator", lambda: SmallGenerator(28, 1, 5, 2, False, torch.sigmoid), f.rand(1, 5), modes=("train",))
    f.case("WGANGPSmallGenerator/cifar", lambda: SmallGenerator(32, 3, 3, 1, True, torch.tanh), f.rand(2, 3))
    f.case("WGANGPSmallDiscriminator", lambda: small_discriminator(1, 1), f.rand(2, 1, 28, 28), modes=("train",))
    f.case("WGANGPSmallDiscriminator/cifar", lambda: small_discriminator(3, 1), f.rand(1, 3, 32, 32),
           modes=("train",))

    sizes = dict(base=16, decay=1, most=6)
    for name, mmgen in (("", False), ("/mmgen", True)):
        make = lambda classes=0: PGGANGenerator(16, 3, 5, classes, mmgen=mmgen, **sizes)
        scales = ((4, 1), (8, 0.25), (16, 0.7)) if mmgen else ((4, 1), (8, 0.25), (8, 1), (16, 0.7), (16, 1))
        for size, fade in scales:
            f.case(f"PGGANGenerator{name}/{size}/{fade}", make, f.rand(2, 5),
                   call=lambda g, z: g(z, size=size, fade=fade), modes=("train",))
        f.case(f"PGGANGenerator{name}/labels", lambda: make(3), f.rand(3, 5), f.ints(3, below=3),
               call=lambda g, z, c: g(z, c, 8, 0.5), modes=("train",))
        judge = lambda classes=0, group=4: PGGANDiscriminator(16, 3, classes, group=group, mmgen=mmgen, **sizes)
        for size, fade in scales:
            f.case(f"PGGANDiscriminator{name}/{size}/{fade}", judge, f.rand(4, 3, size, size),
                   call=lambda d, x: d(x, fade), modes=("train",))
        f.case(f"PGGANDiscriminator{name}/classes", lambda: judge(2, 2), f.rand(4, 3, 8, 8), modes=("train",))
    f.case("PGGANGenerator/decay", lambda: PGGANGenerator(16, 1, 4, 0, 16, 0.5, 9, False), f.rand(1, 4), modes=("train",))
    f.case("PGGANDiscriminator/decay", lambda: PGGANDiscriminator(16, 1, 0, 16, 0.5, 9, 2, False), f.rand(2, 1, 16, 16),
           modes=("train",))
    f.save()


if __name__ == "__main__":
    main()
