#!/usr/bin/env python3
"""The U-Net of flow matching: python3 tests/golden/vision/velocity_unet.py. golden.py (../../nn/layers) draws the
parameters at random and writes the file.

Restated from the descriptions of Ho et al., "Denoising diffusion probabilistic models", NeurIPS 2020: residual blocks
with group norm, SiLU and an embedding of the time, self-attention over pixels."""
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "nn", "layers"))
from golden import Family


class Attention(nn.Module):
    def __init__(self, c, groups, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.proj = nn.GroupNorm(groups, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        q, k, v = (p.unflatten(1, (self.heads, -1)).flatten(3) for p in self.qkv(self.norm(x)).chunk(3, 1))
        weights = torch.softmax(torch.einsum("nhcq,nhck->nhqk", q, k) / math.sqrt(q.shape[2]), -1)
        y = torch.einsum("nhqk,nhck->nhcq", weights, v)
        return x + self.proj(y.reshape(x.shape))


class Block(nn.Module):
    def __init__(self, a, b, embedded, groups, heads):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, a), nn.Conv2d(a, b, 3, padding=1)
        self.embedding = nn.Linear(embedded, b)
        self.norm2, self.conv2 = nn.GroupNorm(groups, b), nn.Conv2d(b, b, 3, padding=1)
        self.shortcut = nn.Conv2d(a, b, 1) if a != b else None
        self.attention = Attention(b, groups, heads) if heads else None

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x))) + self.embedding(F.silu(e))[:, :, None, None]
        h = (self.shortcut(x) if self.shortcut else x) + self.conv2(F.silu(self.norm2(h)))
        return self.attention(h) if self.attention else h


class VelocityUNet(nn.Module):
    def __init__(self, size, channels, width, multipliers, blocks, patch, attention=(), heads=1, groups=8, classes=0):
        super().__init__()
        self.width, self.blocks, self.patch, self.classes = width, blocks, patch, classes
        embedded, pixel = 4 * width, channels * patch * patch
        c = [width * m for m in multipliers]
        at = lambda level: heads if size // patch // 2**level in attention else 0
        self.time = nn.Sequential(nn.Linear(width, embedded), nn.SiLU(), nn.Linear(embedded, embedded))
        if classes:
            self.label = nn.Embedding(classes + 1, embedded)
        self.conv_in = nn.Conv2d(pixel, c[0], 3, padding=1)
        down, up, a = [], [], c[0]
        for level, b in enumerate(c):
            for _ in range(blocks):
                down.append(Block(a, b, embedded, groups, at(level)))
                a = b
        self.down = nn.ModuleList(down)
        self.downsample = nn.ModuleList([nn.Conv2d(a, a, 3, 2, 1) for a in c[:-1]])
        self.middle = Block(a, a, embedded, groups, at(len(c) - 1))
        for level in reversed(range(len(c))):
            up += [Block(2 * c[level], c[level], embedded, groups, at(level)) for _ in range(blocks)]
        self.up = nn.ModuleList(up)
        self.upsample = nn.ModuleList([nn.Conv2d(b, a, 3, padding=1) for a, b in reversed(list(zip(c, c[1:])))])
        self.norm_out, self.conv_out = nn.GroupNorm(groups, c[0]), nn.Conv2d(c[0], pixel, 3, padding=1)

    def forward(self, x, t, labels=None):
        half = self.width // 2
        angles = 1000 * t[:, None] * torch.exp(torch.arange(half, dtype=t.dtype) * (-math.log(10000) / half))
        e = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        if self.classes:
            e = e + self.label(torch.full([len(x)], self.classes) if labels is None else labels)
        h, skips = self.conv_in(F.pixel_unshuffle(x, self.patch)), []
        for i, block in enumerate(self.down):
            if i and i % self.blocks == 0:
                h = self.downsample[i // self.blocks - 1](h)
            h = block(h, e)
            skips.append(h)
        h = self.middle(h, e)
        for i, block in enumerate(self.up):
            if i and i % self.blocks == 0:
                h = self.upsample[i // self.blocks - 1](F.interpolate(h, scale_factor=2))
            h = block(torch.cat([h, skips.pop()], 1), e)
        return F.pixel_shuffle(self.conv_out(F.silu(self.norm_out(h))), self.patch)


def main():
    f = Family("velocity_unet", HERE)
    case = lambda name, make, *inputs: f.case(name, make, *inputs, modes=("train",))
    time = lambda n: f.rand(n, lo=0, hi=1)
    case("VelocityUNet", lambda: VelocityUNet(8, 1, 4, [1, 2], 1, 2, groups=4), f.rand(2, 1, 8, 8), time(2))
    case("VelocityUNet/blocks", lambda: VelocityUNet(8, 2, 4, [1, 2, 1], 2, 1, groups=2), f.rand(2, 2, 8, 8), time(2))
    case("VelocityUNet/attention", lambda: VelocityUNet(8, 1, 4, [1, 1], 1, 1, [4], heads=2, groups=2),
         f.rand(2, 1, 8, 8), time(2))
    labeled = lambda: VelocityUNet(8, 1, 4, [1, 2], 1, 2, [2, 4], groups=2, classes=3)
    case("VelocityUNet/labels", labeled, f.rand(4, 1, 8, 8), time(4), torch.tensor([2, 0, 3, 1]))
    case("VelocityUNet/no_labels", labeled, f.rand(2, 1, 8, 8), time(2))
    f.save()


if __name__ == "__main__":
    main()
