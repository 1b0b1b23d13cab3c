#!/usr/bin/env python3
"""Activation layers: python3 tests/nn/layers/activation.py. What the file holds: golden.py."""
from torch import nn

from golden import Family

f = Family("activation")
x = f.distinct(3, 6, lo=-4, hi=4)
image = f.distinct(2, 3, 2, 4, lo=-4, hi=4)
for name in ["ReLU", "ReLU6", "Sigmoid", "LogSigmoid", "Tanh", "Tanhshrink", "Softsign", "SiLU", "Mish", "SELU",
             "Hardswish", "LeakyReLU", "PReLU", "ELU", "CELU", "GELU", "Softplus", "Hardtanh", "Hardshrink", "Softshrink", "GLU"]:
    f.case(name, getattr(nn, name), x)
# PyTorch keeps 1 / 6 in f32 for the gradient, also in f64.
f.case("Hardsigmoid", nn.Hardsigmoid, x, grad=False)
f.case("LeakyReLU/slope", lambda: nn.LeakyReLU(0.2), x)
f.case("PReLU/channels", lambda: nn.PReLU(3), image)
f.case("RReLU", lambda: nn.RReLU(), x, modes=("eval",))
f.case("ELU/alpha", lambda: nn.ELU(0.7), x)
# And 1 / alpha likewise: one that is exact in f32.
f.case("CELU/alpha", lambda: nn.CELU(0.5), x)
f.case("GELU/tanh", lambda: nn.GELU(approximate="tanh"), x)
f.case("Softplus/options", lambda: nn.Softplus(2, 3), x)
f.case("Softplus/late", lambda: nn.Softplus(1, 30), 8 * x)
f.case("Hardtanh/bounds", lambda: nn.Hardtanh(-0.5, 2), x)
f.case("Hardshrink/lambda", lambda: nn.Hardshrink(1.3), x)
f.case("Softshrink/lambda", lambda: nn.Softshrink(1.3), x)
f.case("Threshold", lambda: nn.Threshold(0.4, -7), x)
f.case("GLU/dim", lambda: nn.GLU(-2), image)
f.case("Softmax", lambda: nn.Softmax(1), x)
f.case("Softmin", lambda: nn.Softmin(0), x)
f.case("LogSoftmax", lambda: nn.LogSoftmax(0), x)
f.case("Softmax2d", lambda: nn.Softmax2d(), image)
f.save()
