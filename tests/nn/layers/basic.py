#!/usr/bin/env python3
"""Linear, embeddings, layers that move elements: python3 tests/nn/layers/basic.py. What the file holds: golden.py."""
import torch
from torch import nn

from golden import Family

f = Family("basic")
f.case("Linear", lambda: nn.Linear(3, 4), f.rand(2, 3))
f.case("Linear/plain", lambda: nn.Linear(3, 4, bias=False), f.rand(2, 5, 3))
f.case("Linear/vector", lambda: nn.Linear(3, 1), f.rand(3))
f.case("Bilinear", lambda: nn.Bilinear(3, 4, 5), f.rand(2, 3), f.rand(2, 4))
f.case("Bilinear/plain", lambda: nn.Bilinear(3, 2, 1, bias=False), f.rand(2, 2, 3), f.rand(2, 2, 2))
f.case("Identity", nn.Identity, f.rand(2, 3))
f.case("Flatten", nn.Flatten, f.rand(2, 3, 2, 2))
f.case("Flatten/some", lambda: nn.Flatten(0, 1), f.rand(2, 3, 2))
f.case("Unflatten", lambda: nn.Unflatten(1, (3, -1)), f.rand(2, 6, 2))
f.case("Dropout", lambda: nn.Dropout(0.3), f.rand(2, 3), modes=("eval",))
f.case("Dropout/none", lambda: nn.Dropout(0), f.rand(2, 3))
f.case("Sequential", lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 2))), f.rand(2, 3))
f.case("Embedding", lambda: nn.Embedding(5, 3), f.ints(2, 4, below=5))
f.case("Embedding/padding", lambda: nn.Embedding(5, 3, padding_idx=-2), f.ints(7, below=5))
f.case("Embedding/freq", lambda: nn.Embedding(5, 3, scale_grad_by_freq=True), f.ints(9, below=5))
f.save()
