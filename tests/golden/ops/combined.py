#!/usr/bin/env python3
"""Chains of ops that fuse, against PyTorch: python3 tests/golden/ops/combined.py. What the file holds: golden.py."""
import torch.nn.functional as F

from golden import Family

f = Family("combined")
f.case("conv2d/relu", lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), f.rand(2, 3, 5, 6), f.rand(4, 3, 3, 3), f.rand(4))
f.case("linear/relu", lambda x, w, b: F.relu(F.linear(x, w, b)), f.rand(3, 7), f.rand(5, 7), f.rand(5))
f.case("batch_norm/relu", lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True)),
       f.rand(3, 4, 5, 2), f.rand(4), f.rand(4))
f.case("batch_norm/add_relu", lambda x, w, b, r: F.relu(F.batch_norm(x, None, None, w, b, training=True) + r),
       f.rand(3, 4, 5, 2), f.rand(4), f.rand(4), f.rand(3, 4, 5, 2))
f.case("batch_norm/leaky_relu",
       lambda x, w, b: F.leaky_relu(F.batch_norm(x, None, None, w, b, training=True), 0.2),
       f.rand(3, 4, 5, 2), f.rand(4), f.rand(4))
f.save()
