#!/usr/bin/env python3
"""SNGAN and R3GAN: python3 tests/golden/gan/newer.py. golden.py (../../nn/layers) draws the parameters at random and
writes the file; the training steps have the formula of steps.py.

Restated from the papers' descriptions: Miyato et al. and Miyato and Koyama, ICLR 2018; Huang et al., NeurIPS 2024.

    steps/<case>/losses                           [5,2]: the losses of 5 steps, discriminator and generator
    steps/<case>/d/<name>, <case>/g/<name>        gradients in the first step
    steps/<case>/disc/<name>, <case>/gen/<name>   state after 5 steps of Adam
"""
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import spectral_norm

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "nn", "layers"))
from golden import Family
from steps import LOSSES, filled, r1, rand

STEPS, BATCH = 5, 4


class ConditionalNorm(nn.Module):
    def __init__(self, features, classes, eps=1e-5, plus_one=False):
        super().__init__()
        self.norm = nn.BatchNorm2d(features, eps=eps, affine=classes == 0)
        if classes:
            self.weight_embedding = nn.Embedding(classes, features)
            self.bias_embedding = nn.Embedding(classes, features)
        self.plus_one = plus_one

    def forward(self, x, labels):
        x = self.norm(x)
        if labels is None:
            return x
        weight = self.weight_embedding(labels)[:, :, None, None]
        return x * (weight + 1 if self.plus_one else weight) + self.bias_embedding(labels)[:, :, None, None]


class Conv(nn.Module):
    """A convolution named "conv", with spectral norm or without."""

    def __init__(self, a, b, kernel, sn):
        super().__init__()
        conv = nn.Conv2d(a, b, kernel, padding=kernel // 2)
        self.conv = spectral_norm(conv) if sn else conv

    def forward(self, x):
        return self.conv(x)


def twice(x):
    return F.interpolate(x, scale_factor=2)


class GeneratorBlock(nn.Module):
    def __init__(self, width, classes, studio):
        super().__init__()
        self.conv_1, self.conv_2 = Conv(width, width, 3, False), Conv(width, width, 3, False)
        self.norm_1 = ConditionalNorm(width, classes, 1e-4, studio)
        self.norm_2 = ConditionalNorm(width, classes, 1e-4, studio)
        self.shortcut = Conv(width, width, 1, False)

    def forward(self, x, labels):
        h = self.conv_1(twice(F.relu(self.norm_1(x, labels))))
        return self.conv_2(F.relu(self.norm_2(h, labels))) + self.shortcut(twice(x))


class SNGANGenerator(nn.Module):
    def __init__(self, size, channels, latent, classes, width, studio=True):
        super().__init__()
        self.noise2feat = nn.Linear(latent, 16 * width)
        self.conv_blocks = nn.ModuleList(
            [GeneratorBlock(width, classes, studio) for _ in range(int(math.log2(size // 4)))])
        self.to_rgb = Conv(width, channels, 3, False)
        self.to_rgb.bn = nn.BatchNorm2d(width, eps=1e-4)

    def forward(self, z, labels=None):
        x = self.noise2feat(z).reshape(len(z), -1, 4, 4)
        for block in self.conv_blocks:
            x = block(x, labels)
        return torch.tanh(self.to_rgb(F.relu(self.to_rgb.bn(x))))


class DiscriminatorBlock(nn.Module):
    def __init__(self, a, b, head=False, down=True):
        super().__init__()
        self.conv_1, self.conv_2 = Conv(a, b, 3, True), Conv(b, b, 3, True)
        if down:
            self.shortcut = Conv(a, b, 1, True)
        self.head, self.down = head, down

    def forward(self, x):
        h = self.conv_2(F.relu(self.conv_1(x if self.head else F.relu(x))))
        if self.head:
            return F.avg_pool2d(h, 2) + self.shortcut(F.avg_pool2d(x, 2))
        return F.avg_pool2d(h, 2) + F.avg_pool2d(self.shortcut(x), 2) if self.down else h + x


class SNGANDiscriminator(nn.Module):
    def __init__(self, size, channels, classes, width, studio=True):
        super().__init__()
        self.from_rgb = DiscriminatorBlock(channels, width, head=True)
        downs = [True] * int(math.log2(size // 16)) + [False, False]
        self.conv_blocks = nn.ModuleList([DiscriminatorBlock(width, width, down=down) for down in downs])
        self.decision = spectral_norm(nn.Linear(width, 1, bias=studio))
        if classes:
            self.proj_y = spectral_norm(nn.Embedding(classes, width))

    def forward(self, x, labels=None):
        h = self.from_rgb(x)
        for block in self.conv_blocks:
            h = block(h)
        h = F.relu(h).sum((2, 3))
        score = self.decision(h)
        return score if labels is None else score + (self.proj_y(labels) * h).sum(1, keepdim=True)


class Convolution(nn.Module):
    """A convolution named "Layer", without bias."""

    def __init__(self, a, b, kernel=1, groups=1):
        super().__init__()
        self.Layer = nn.Conv2d(a, b, kernel, padding=kernel // 2, groups=groups, bias=False)

    def forward(self, x):
        return self.Layer(x)


class Activation(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.Bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return F.leaky_relu(x + self.Bias[:, None, None], 0.2)


class Residual(nn.Module):
    def __init__(self, a, expansion, group_width):
        super().__init__()
        b = a * expansion
        self.LinearLayer1 = Convolution(a, b)
        self.LinearLayer2 = Convolution(b, b, 3, b // group_width)
        self.LinearLayer3 = Convolution(b, a)
        self.NonLinearity1, self.NonLinearity2 = Activation(b), Activation(b)

    def forward(self, x):
        y = self.NonLinearity1(self.LinearLayer1(x))
        return x + self.LinearLayer3(self.NonLinearity2(self.LinearLayer2(y)))


class Resample(nn.Module):
    """Bilinear, with zeros beyond the edges: the outer product of [1,3,3,1] / 8."""

    def __init__(self, a, b, up):
        super().__init__()
        if a != b:
            self.LinearLayer = Convolution(a, b)
        self.up = up

    def forward(self, x):
        linear = getattr(self, "LinearLayer", nn.Identity())
        k = torch.tensor([1.0, 3, 3, 1], dtype=x.dtype) / 8
        k = torch.outer(k, k)
        if self.up:
            x = linear(x)
            return F.conv_transpose2d(x, 4 * k.repeat(x.shape[1], 1, 1, 1), stride=2, padding=1, groups=x.shape[1])
        return linear(F.conv2d(x, k.repeat(x.shape[1], 1, 1, 1), stride=2, padding=1, groups=x.shape[1]))


class GenerativeBasis(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.Basis = nn.Parameter(torch.zeros(b, 4, 4))
        self.LinearLayer = nn.Linear(a, b, bias=False)

    def forward(self, x):
        return self.Basis * self.LinearLayer(x)[:, :, None, None]


class DiscriminativeBasis(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.Basis = nn.Conv2d(a, a, 4, groups=a, bias=False)
        self.LinearLayer = nn.Linear(a, b, bias=False)

    def forward(self, x):
        return self.LinearLayer(self.Basis(x).flatten(1))


class Stage(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.Layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.Layers:
            x = layer(x)
        return x


class R3GANGenerator(nn.Module):
    def __init__(self, widths, channels, latent, classes, blocks, expansion, group_width):
        super().__init__()
        residuals = lambda a: [Residual(a, expansion, group_width) for _ in range(blocks)]
        first = GenerativeBasis(2 * latent if classes else latent, widths[0])
        self.MainLayers = nn.ModuleList([Stage(first, *residuals(widths[0]))])
        for a, b in zip(widths, widths[1:]):
            self.MainLayers.append(Stage(Resample(a, b, True), *residuals(b)))
        self.AggregationLayer = Convolution(widths[-1], channels)
        self.classes = classes
        if classes:
            self.EmbeddingLayer = nn.Linear(classes, latent, bias=False)

    def forward(self, z, labels=None):
        if labels is not None:
            z = torch.cat([z, self.EmbeddingLayer(F.one_hot(labels, self.classes).to(z.dtype))], 1)
        for stage in self.MainLayers:
            z = stage(z)
        return self.AggregationLayer(z)


class R3GANDiscriminator(nn.Module):
    def __init__(self, widths, channels, classes, blocks, expansion, group_width):
        super().__init__()
        residuals = lambda a: [Residual(a, expansion, group_width) for _ in range(blocks)]
        self.ExtractionLayer = Convolution(channels, widths[-1])
        down = widths[::-1]
        stages = [Stage(*residuals(a), Resample(a, b, False)) for a, b in zip(down, down[1:])]
        last = DiscriminativeBasis(widths[0], widths[0] if classes else 1)
        self.MainLayers = nn.ModuleList([*stages, Stage(*residuals(widths[0]), last)])
        self.classes = classes
        if classes:
            self.EmbeddingLayer = nn.Linear(classes, widths[0], bias=False)

    def forward(self, x, labels=None):
        x = self.ExtractionLayer(x)
        for stage in self.MainLayers:
            x = stage(x)
        if labels is None:
            return x
        return (x * self.EmbeddingLayer(F.one_hot(labels, self.classes).to(x.dtype))).sum(1, keepdim=True)


def relativistic_d(real, fake):
    return F.softplus(fake - real).mean()


def relativistic_g(real, fake):
    return F.softplus(real - fake).mean()


def penalties(disc, real, fake, labels=None):
    """R1 + R2."""
    judge = lambda x: disc(x, labels)
    return r1(judge, real, None, None) + r1(judge, fake, None, None)


def train(f, name, gen, disc, loss_d, loss_g, image, latent, classes, betas, gamma, scale=1):
    """5 steps; the loss of the generator takes the scores of real images too. `scale` multiplies initial parameters:
    scores of networks without normalization stay near 1."""
    put = lambda key, t: f.tensors.__setitem__(f"steps/{name}/{key}", t)
    gen, disc = filled(gen, torch.float64), filled(disc, torch.float64)
    with torch.no_grad():
        for p in [*gen.parameters(), *disc.parameters()]:
            p.mul_(scale)
    adam = lambda net: torch.optim.Adam(net.parameters(), lr=1e-3, betas=betas, eps=1e-3)
    opt_d, opt_g, losses = adam(disc), adam(gen), []
    for step in range(STEPS):
        real = rand(f"real{step}", BATCH, *image)
        labels = (torch.arange(BATCH) + step) % classes
        z = lambda which: 2 * rand(f"z{which}{step}", BATCH, latent)
        opt_d.zero_grad()
        fake = gen(z("d"), labels).detach()
        real_scores = disc(real, labels)
        loss = loss_d(real_scores, disc(fake, labels))
        if gamma:
            loss = loss + gamma / 2 * penalties(disc, real, fake, labels)
        loss.backward()
        if step == 0:
            for key, p in disc.named_parameters():
                put(f"d/{key}", p.grad.clone())
        opt_d.step()
        opt_g.zero_grad()
        fake = gen(z("g"), labels)
        real_scores = disc(real, labels)
        g_loss = loss_g(real_scores, disc(fake, labels))
        g_loss.backward()
        if step == 0:
            for key, p in gen.named_parameters():
                put(f"g/{key}", p.grad.clone())
        opt_g.step()
        losses.append([loss.item(), g_loss.item()])
    put("losses", torch.tensor(losses, dtype=torch.float64))
    for prefix, net in (("disc", disc), ("gen", gen)):
        for key, t in net.state_dict().items():
            put(f"{prefix}/{key}", t.detach().clone())
    print(name, losses)


def main():
    f = Family("newer", HERE)
    for name, plus_one in (("", False), ("/plus_one", True)):
        f.case(f"ConditionalBatchNorm2d{name}", lambda: ConditionalNorm(3, 4, 1e-2 if plus_one else 1e-5, plus_one),
               f.rand(5, 3, 2, 3), f.ints(5, below=4))

    f.case("SNGANGenerator", lambda: SNGANGenerator(16, 3, 5, 3, 4), f.rand(3, 5), f.ints(3, below=3))
    f.case("SNGANGenerator/paper", lambda: SNGANGenerator(8, 1, 4, 2, 3, studio=False), f.rand(3, 4), f.ints(3, below=2))
    f.case("SNGANGenerator/unlabeled", lambda: SNGANGenerator(8, 1, 4, 0, 3), f.rand(3, 4))
    f.case("SNGANDiscriminator", lambda: SNGANDiscriminator(32, 1, 3, 2), f.rand(2, 1, 32, 32), f.ints(2, below=3))
    f.case("SNGANDiscriminator/paper", lambda: SNGANDiscriminator(16, 1, 2, 3, studio=False), f.rand(3, 1, 16, 16),
           f.ints(3, below=2))
    f.case("SNGANDiscriminator/unlabeled", lambda: SNGANDiscriminator(16, 1, 0, 3), f.rand(3, 1, 16, 16))
    f.case("SNGANDiscriminator/penalties", lambda: SNGANDiscriminator(16, 2, 3, 3), f.rand(2, 2, 16, 16),
           f.rand(2, 2, 16, 16), f.ints(2, below=3), call=penalties, modes=("train",), grad=False)

    shape = dict(blocks=2, expansion=2, group_width=4)
    f.case("R3GANGenerator", lambda: R3GANGenerator([4, 4, 2], 3, 5, 0, **shape), f.rand(2, 5), modes=("train",))
    f.case("R3GANGenerator/labels", lambda: R3GANGenerator([6, 4], 1, 3, 3, 1, 3, 2), f.rand(3, 3), f.ints(3, below=3),
           modes=("train",))
    f.case("R3GANDiscriminator", lambda: R3GANDiscriminator([4, 4, 2], 1, 0, **shape), f.rand(2, 1, 16, 16),
           modes=("train",))
    f.case("R3GANDiscriminator/labels", lambda: R3GANDiscriminator([6, 4], 1, 3, 1, 3, 2), f.rand(3, 1, 8, 8),
           f.ints(3, below=3), modes=("train",))
    f.case("R3GANDiscriminator/penalties", lambda: R3GANDiscriminator([4, 6, 2], 1, 0, **shape), f.rand(2, 1, 16, 16),
           f.rand(2, 1, 16, 16), call=penalties, modes=("train",), grad=False)
    f.case("R3GANDiscriminator/penalties/labels", lambda: R3GANDiscriminator([6, 4], 1, 3, 1, 3, 2), f.rand(3, 1, 8, 8),
           f.rand(3, 1, 8, 8), f.ints(3, below=3), call=penalties, modes=("train",), grad=False)

    hinge_d, hinge_g = LOSSES["hinge"]
    train(f, "sngan", SNGANGenerator(16, 3, 5, 3, 4), SNGANDiscriminator(16, 3, 3, 3), hinge_d,
          lambda real, fake: hinge_g(fake), image=(3, 16, 16), latent=5, classes=3, betas=(0.5, 0.999), gamma=0)
    train(f, "r3gan", R3GANGenerator([4, 6, 2], 3, 5, 3, **shape), R3GANDiscriminator([4, 6, 2], 3, 3, **shape),
          relativistic_d, relativistic_g, image=(3, 16, 16), latent=5, classes=3, betas=(0.0, 0.9), gamma=0.1, scale=0.75)
    f.save()


if __name__ == "__main__":
    main()
