#!/usr/bin/env python3
"""GPT: python3 tests/golden/gpt/gpt.py. What the file holds: ../../nn/layers/golden.py.

Restated from GPT-2's description (Radford et al., 2019) and nanoGPT: pre-norm blocks, exact gelu, tied embeddings."""
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
    def __init__(self, width, heads, bias):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.heads = heads

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.c_attn(x).split(width, 2))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        later = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        y = F.softmax(scores.masked_fill(later, -math.inf), -1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(n, t, width))


class MLP(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, bias=bias), Attention(width, heads, bias)
        self.ln_2, self.mlp = nn.LayerNorm(width, bias=bias), MLP(width, bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width, bias=True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads, bias) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, bias=bias)

    def forward(self, x):
        y = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            y = block(y)
        return self.ln_f(y) @ self.wte.weight.T


f = Family("gpt", HERE)
f.case("GPT", lambda: GPT(11, 6, 2, 2, 8), f.ints(3, 6, below=11))
f.case("GPT/short", lambda: GPT(7, 9, 3, 1, 6), f.ints(2, 4, below=7))
f.case("GPT/no_bias", lambda: GPT(5, 8, 1, 3, 6, bias=False), f.ints(2, 8, below=5))
f.save()
