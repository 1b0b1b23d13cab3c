#!/usr/bin/env python3
"""Attention and recurrent steps against PyTorch: python3 tests/golden/ops/attention.py writes
attention.safetensors, which golden.py documents."""
import torch
from torch.nn.functional import _scaled_dot_product_attention as sdpa

from golden import Family

f = Family("attention")
mask = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)


# PyTorch 1.13's function, which returns the output and the weights. True in a bool mask: the key takes part.
def attention(mask=None, causal=False):
    return lambda q, k, v, *m: sdpa(q, k, v, m[0] if m else mask, 0.0, True, causal)


f.case("sdpa", attention(), f.rand(2, 3, 4), f.rand(2, 5, 4), f.rand(2, 5, 3))
f.case("sdpa/heads", attention(), f.rand(2, 2, 3, 4), f.rand(2, 2, 5, 4), f.rand(2, 2, 5, 4))
f.case("sdpa/mask", attention(mask), f.rand(2, 3, 4), f.rand(2, 5, 4), f.rand(2, 5, 3))
f.case("sdpa/added", attention(), f.rand(2, 3, 4), f.rand(2, 5, 4), f.rand(2, 5, 3), f.rand(3, 5))
f.case("sdpa/causal", attention(causal=True), f.rand(2, 4, 3), f.rand(2, 4, 3), f.rand(2, 4, 3))
f.case("sdpa/causal_long", attention(causal=True), f.rand(3, 4), f.rand(5, 4), f.rand(5, 3))
f.case("sdpa/one", attention(), f.rand(1, 1), f.rand(1, 1), f.rand(1, 1))
f.case("sdpa/empty", attention(), f.rand(0, 3, 4), f.rand(0, 5, 4), f.rand(0, 5, 3))


def lstm_cell(gates, c):
    """PyTorch's cell, with weights that hand its input through and ignore its state."""
    width, hidden = gates.shape[1], c.shape[1]
    eye, zero = torch.eye(width, dtype=c.dtype), torch.zeros(width, hidden, dtype=c.dtype)
    return torch.lstm_cell(gates, (torch.zeros_like(c), c), eye, zero)


f.case("lstm_cell", lstm_cell, f.rand(3, 20, lo=-4, hi=4), f.rand(3, 5))
f.case("lstm_cell/one", lstm_cell, f.rand(1, 4), f.rand(1, 1))
f.save()
