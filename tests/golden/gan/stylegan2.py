#!/usr/bin/env python3
"""StyleGAN2: python3 tests/golden/gan/stylegan2.py. golden.py (../../nn/layers) draws the parameters at random and
writes the file.

Restated from the formulas of Karras et al., CVPR 2020; the names are those of StyleGAN2-ADA (Karras et al., NeurIPS
2020). Results of cases named R1 and PathLength are penalties, so that their gradients are of second order."""
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "nn", "layers"))
from golden import Family

f = Family("stylegan2", HERE)
TAPS = torch.tensor([1.0, 3, 3, 1], dtype=torch.float64)


def empty(*shape):
    return nn.Parameter(torch.zeros(*shape))


def filter_buffer(taps=TAPS):
    return torch.outer(taps, taps) / taps.sum() ** 2


def fir(x, k, up=1, down=1, before=0, after=0, gain=1):
    """Zeros between the pixels, padding, a convolution (a rotated correlation), every down-th pixel."""
    n, c, h, w = x.shape
    y = x.new_zeros(n, c, h * up, w * up)
    y[:, :, ::up, ::up] = x
    k = (k * gain).flip(0, 1).to(x.dtype).repeat(c, 1, 1, 1)
    return F.conv2d(F.pad(y, (before, after, before, after)), k, groups=c)[:, :, ::down, ::down]


def lrelu(x):
    return F.leaky_relu(x, 0.2) * 2**0.5


def modulated(x, weight, s, demodulate, up, down, k):
    """One convolution for each image, with a weight of its own."""
    out = []
    for image, style in zip(x, s):
        w = weight * style[None, :, None, None]
        if demodulate:
            w = w / (w.square().sum((1, 2, 3), keepdim=True) + 1e-8).sqrt()
        image = image[None]
        if up == 2:
            y = F.conv_transpose2d(image, w.transpose(0, 1), stride=2)
            y = fir(y, k, before=1, after=1, gain=4)
        elif down == 2:
            y = F.conv2d(fir(image, k, before=2, after=2), w, stride=2)
        else:
            y = F.conv2d(image, w, padding=w.shape[2] // 2)
        out.append(y)
    return torch.cat(out)


class FullyConnected(nn.Module):
    def __init__(self, cin, cout, activation=lambda x: x, lr_mul=1.0):
        super().__init__()
        self.weight, self.bias = empty(cout, cin), empty(cout)
        self.activation, self.lr_mul = activation, lr_mul

    def forward(self, x):
        return self.activation(F.linear(x, self.weight * (self.lr_mul / math.sqrt(self.weight.shape[1])),
                                        self.bias * self.lr_mul))


class ModulatedConv2d(nn.Module):
    def __init__(self, cin, cout, kernel, style, demodulate=True, up=1, down=1, gain=1.0, taps=TAPS):
        super().__init__()
        self.affine = FullyConnected(style, cin)
        self.weight = empty(cout, cin, kernel, kernel)
        if taps is not None:
            self.register_buffer("resample_filter", filter_buffer(taps))
        self.demodulate, self.up, self.down, self.gain = demodulate, up, down, gain

    def forward(self, x, w):
        s, k = self.affine(w), getattr(self, "resample_filter", None)
        if not self.demodulate:
            s = s / math.sqrt(self.weight[0].numel())
        return modulated(x, self.weight, s, self.demodulate, self.up, self.down, k) * self.gain


class SynthesisLayer(nn.Module):
    def __init__(self, cin, cout, style, size, up=1):
        super().__init__()
        self.register_buffer("resample_filter", filter_buffer())
        self.affine = FullyConnected(style, cin)
        self.weight = empty(cout, cin, 3, 3)
        self.register_buffer("noise_const", f.rand(size, size))
        self.noise_strength = nn.Parameter(torch.zeros([]))
        self.bias = empty(cout)
        self.up = up

    def forward(self, x, w, noise):
        y = modulated(x, self.weight, self.affine(w), True, self.up, 1, self.resample_filter)
        n = {"const": self.noise_const, "none": 0}[noise] if isinstance(noise, str) else noise
        return lrelu(y + n * self.noise_strength + self.bias[:, None, None])


class ToRGB(nn.Module):
    def __init__(self, cin, cout, style):
        super().__init__()
        self.affine = FullyConnected(style, cin)
        self.weight, self.bias = empty(cout, cin, 1, 1), empty(cout)

    def forward(self, x, w):
        s = self.affine(w) / math.sqrt(self.weight.shape[1])
        return modulated(x, self.weight, s, False, 1, 1, None) + self.bias[:, None, None]


class SynthesisBlock(nn.Module):
    def __init__(self, cin, cout, style, size, channels):
        super().__init__()
        self.register_buffer("resample_filter", filter_buffer())
        if cin == 0:
            self.const = empty(cout, size, size)
        else:
            self.conv0 = SynthesisLayer(cin, cout, style, size, up=2)
        self.conv1 = SynthesisLayer(cout, cout, style, size)
        self.torgb = ToRGB(cout, channels, style)


class Synthesis(nn.Module):
    def __init__(self, size, style, channels, widths):
        super().__init__()
        self.sizes = [2**i for i in range(2, int(math.log2(size)) + 1)]
        cin = 0
        for s in self.sizes:
            self.add_module(f"b{s}", SynthesisBlock(cin, widths(s), style, s, channels))
            cin = widths(s)

    def forward(self, ws, noise="const"):
        x, image, i = None, None, 0
        pick = lambda i: noise if isinstance(noise, str) else noise[i]
        for s in self.sizes:
            b = getattr(self, f"b{s}")
            if s == 4:
                x = b.const.repeat(len(ws), 1, 1, 1)
            else:
                x, i = b.conv0(x, ws[:, i], pick(i)), i + 1
                image = fir(image, b.resample_filter, up=2, before=2, after=1, gain=4)
            x, i = b.conv1(x, ws[:, i], pick(i)), i + 1
            rgb = b.torgb(x, ws[:, i])
            image = rgb if image is None else image + rgb
        return image


def normalized(x):
    return x * (x.square().mean(1, keepdim=True) + 1e-8).rsqrt()


class Mapping(nn.Module):
    def __init__(self, latent, classes, style, layers, ws):
        super().__init__()
        self.latent, self.classes, self.layers, self.ws = latent, classes, layers, ws
        if classes:
            self.embed = FullyConnected(classes, style)
        cin = latent + (style if classes else 0)
        for i in range(layers):
            self.add_module(f"fc{i}", FullyConnected(cin, style, lrelu, 0.01))
            cin = style
        if ws:
            self.register_buffer("w_avg", f.rand(style))

    def forward(self, z, labels=None, truncation=1.0, cutoff=None):
        parts = [normalized(z)] if self.latent else []
        if self.classes:
            parts.append(normalized(self.embed(F.one_hot(labels, self.classes).to(self.embed.weight.dtype))))
        x = torch.cat(parts, 1)
        for i in range(self.layers):
            x = getattr(self, f"fc{i}")(x)
        if not self.ws:
            return x
        x = x[:, None].repeat(1, self.ws, 1)
        moved = self.w_avg + truncation * (x - self.w_avg)
        first = torch.arange(self.ws) < (self.ws if cutoff is None else cutoff)
        return torch.where(first[None, :, None], moved, x)


class Generator(nn.Module):
    def __init__(self, size, base, most, latent, style, layers, channels=3, classes=0):
        super().__init__()
        self.synthesis = Synthesis(size, style, channels, lambda s: min(base // s, most))
        self.mapping = Mapping(latent, classes, style, layers, 2 * int(math.log2(size)) - 2)

    def forward(self, z, labels=None, truncation=1.0, cutoff=None, noise="const"):
        return self.synthesis(self.mapping(z, labels, truncation, cutoff), noise)


class Conv(nn.Module):
    def __init__(self, cin, cout, kernel, activation=lrelu, down=1, bias=True):
        super().__init__()
        self.register_buffer("resample_filter", filter_buffer())
        self.weight = empty(cout, cin, kernel, kernel)
        if bias:
            self.bias = empty(cout)
        self.activation, self.down = activation, down

    def forward(self, x):
        half, w = self.weight.shape[2] // 2, self.weight / math.sqrt(self.weight[0].numel())
        if self.down == 2:
            y = F.conv2d(fir(x, self.resample_filter, before=1 + half, after=1 + half), w, stride=2)
        else:
            y = F.conv2d(x, w, padding=half)
        return self.activation(y + (self.bias[:, None, None] if hasattr(self, "bias") else 0))


class DiscriminatorBlock(nn.Module):
    def __init__(self, cin, cout, image=0, residual=True):
        super().__init__()
        self.register_buffer("resample_filter", filter_buffer())
        if image:
            self.fromrgb = Conv(image, cin, 1)
        self.conv0, self.conv1 = Conv(cin, cin, 3), Conv(cin, cout, 3, down=2)
        if residual:
            self.skip = Conv(cin, cout, 1, lambda x: x, down=2, bias=False)

    def forward(self, x):
        x = self.fromrgb(x) if hasattr(self, "fromrgb") else x
        y = self.conv1(self.conv0(x))
        return (y + self.skip(x)) / 2**0.5 if hasattr(self, "skip") else y


class Epilogue(nn.Module):
    def __init__(self, c, out, group):
        super().__init__()
        self.conv, self.fc, self.out = Conv(c + 1, c, 3), FullyConnected(16 * c, c, lrelu), FullyConnected(c, out)
        self.group = group

    def forward(self, x):
        n = len(x)
        y = x.reshape(min(self.group, n), -1, *x.shape[1:])
        deviation = (y.var(0, unbiased=False) + 1e-8).sqrt().mean((1, 2, 3))
        plane = deviation.repeat(min(self.group, n)).reshape(n, 1, 1, 1).expand(-1, -1, 4, 4)
        return self.out(self.fc(self.conv(torch.cat([x, plane], 1)).flatten(1)))


class Discriminator(nn.Module):
    def __init__(self, size, base, most, channels=3, classes=0, residual=True, cmap=0, layers=8, group=4):
        super().__init__()
        widths = lambda s: min(base // s, most)
        self.sizes, self.classes = [2**i for i in range(int(math.log2(size)), 2, -1)], classes
        for s in self.sizes:
            self.add_module(f"b{s}", DiscriminatorBlock(widths(s), widths(s // 2), channels if s == size else 0,
                                                        residual))
        cmap = cmap or widths(4)
        if classes:
            self.mapping = Mapping(0, classes, cmap, layers, 0)
        self.b4 = Epilogue(widths(4), cmap if classes else 1, group)

    def forward(self, x, labels=None):
        for s in self.sizes:
            x = getattr(self, f"b{s}")(x)
        x = self.b4(x)
        if self.classes:
            c = self.mapping(None, labels)
            x = (x * c).sum(1, keepdim=True) / math.sqrt(c.shape[1])
        return x


def r1(disc, x, *labels):
    g, = torch.autograd.grad(disc(x, *labels).sum(), x, create_graph=True)
    return g.square().sum((1, 2, 3)).mean()


def path_length(gen, z, y, average):
    ws = gen.mapping(z)
    g, = torch.autograd.grad((gen.synthesis(ws) * y).sum(), ws, create_graph=True)
    lengths = g.square().sum(2).mean(1).sqrt()
    return (lengths - average).square().mean()


def mixed(gen, z1, z2, cut):
    a, b = gen.mapping(z1), gen.mapping(z2)
    first = torch.arange(a.shape[1])[None] < cut.reshape(-1, 1)
    return gen.synthesis(torch.where(first[:, :, None], a, b))


def main():
    CONV = {"same": dict(), "up": dict(up=2), "down": dict(down=2, gain=2**0.5), "plain": dict(demodulate=False, gain=0.5)}
    for name, o in CONV.items():
        make = lambda: ModulatedConv2d(3, 2, 3, 4, **o)
        f.case(f"ModulatedConv2d/{name}", make, f.rand(3, 3, 4, 6), f.rand(3, 4), modes=["train"])
    f.case("ModulatedConv2d/1x1", lambda: ModulatedConv2d(3, 2, 1, 4, demodulate=False, taps=None), f.rand(2, 3, 3, 2), f.rand(2, 4),
           modes=["train"])
    # Taps that are not symmetric: the filter and the transposed convolution are not rotated by mistake.
    skewed = torch.tensor([1.0, 2, 5, 3], dtype=torch.float64)
    f.case("ModulatedConv2d/skewed", lambda: ModulatedConv2d(2, 3, 3, 2, up=2, taps=skewed), f.rand(2, 2, 3, 3), f.rand(2, 2),
           modes=["train"])

    G = lambda **o: Generator(8, 32, 6, 5, 4, 2, **o)
    planes = [f.rand(n, 1, s, s) for n, s in ((2, 4), (1, 8), (2, 8))]
    f.case("Generator/16", lambda: Generator(16, 64, 6, 5, 4, 2), f.rand(2, 5), modes=["eval"])
    f.case("Generator/none", G, f.rand(2, 5), modes=["eval"], call=lambda g, z: g(z, noise="none"))
    f.case("Generator/planes", G, f.rand(2, 5), *planes, modes=["train"], call=lambda g, z, *n: g(z, noise=n))
    f.case("Generator/4", lambda: Generator(4, 16, 4, 3, 5, 1, channels=1), f.rand(2, 3), modes=["eval"])
    f.case("Generator/truncated", G, f.rand(2, 5), modes=["eval"], call=lambda g, z: g(z, truncation=0.7))
    f.case("Generator/cutoff", G, f.rand(2, 5), modes=["eval"], call=lambda g, z: g(z, truncation=0.5, cutoff=2))
    f.case("Generator/labels", lambda: G(classes=3), f.rand(3, 5), f.ints(3, below=3), modes=["eval"])
    f.case("Generator/mixed", G, f.rand(3, 5), f.rand(3, 5), torch.tensor([1, 3, 4]), modes=["eval"], call=mixed)
    f.case("Generator/PathLength", G, f.rand(2, 5), f.rand(2, 3, 8, 8), torch.tensor(0.3, dtype=torch.float64),
           modes=["train"], call=path_length)

    D = lambda **o: Discriminator(8, 32, 6, **o)
    f.case("Discriminator/16", lambda: Discriminator(16, 64, 6), f.rand(8, 3, 16, 16), modes=["train"])
    f.case("Discriminator/group", lambda: D(channels=1, group=2), f.rand(4, 1, 8, 8), modes=["train"])
    f.case("Discriminator/orig", lambda: D(residual=False, channels=1), f.rand(3, 1, 8, 8), modes=["train"])
    f.case("Discriminator/labels", lambda: D(classes=3), f.rand(2, 3, 8, 8), f.ints(2, below=3), modes=["train"])
    f.case("Discriminator/cmap", lambda: D(classes=3, cmap=5, layers=2), f.rand(2, 3, 8, 8), f.ints(2, below=3),
           modes=["train"])
    f.case("Discriminator/R1", D, f.rand(4, 3, 8, 8), modes=["train"], call=r1)
    f.case("Discriminator/R1/labels", lambda: D(classes=3, layers=2), f.rand(4, 3, 8, 8), f.ints(4, below=3), modes=["train"],
           call=r1)
    f.save()


if __name__ == "__main__":
    main()
