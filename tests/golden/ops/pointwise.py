#!/usr/bin/env python3
"""Element-wise ops and activations in PyTorch: python3 tests/golden/ops/pointwise.py. What the file holds: golden.py."""
import torch
import torch.nn.functional as F

from golden import Family

f = Family("pointwise")
SHAPES = {"": (2, 3, 3, 5), "/one": (1,), "/scalar": (), "/empty": (0, 3)}


def one(name, fn, lo=-3.0, hi=3.0, shapes=("", "/scalar", "/empty")):
    for s in shapes:
        f.case(name + s, fn, f.rand(*SHAPES[s], lo=lo, hi=hi), grad=name not in NO_GRADIENT)


# Values alone, where PyTorch's f64 gradients are not accurate to f64: its trigamma has some 10 digits, and it multiplies by
# 1/6 rounded to f32.
NO_GRADIENT = {"digamma", "hardsigmoid", "hardswish"}


def two(name, fn, a=(-3.0, 3.0), b=(-3.0, 3.0), grad=True):
    f.case(name, fn, f.rand(2, 3, 3, 5, lo=a[0], hi=a[1]), f.rand(2, 3, 3, 5, lo=b[0], hi=b[1]), grad=grad)
    f.case(name + "/broadcast", fn, f.rand(4, 1, 3, lo=a[0], hi=a[1]), f.rand(5, 1, lo=b[0], hi=b[1]), grad=grad)


for n in "neg abs sign square exp expm1 sin cos tanh erf floor ceil round sigmoid sinh cosh atan asinh exp2 erfc trunc frac deg2rad rad2deg sinc".split():
    one(n, getattr(torch, n))
for n in "log sqrt rsqrt reciprocal log2 log10 lgamma digamma".split():
    one(n, getattr(torch, n), lo=0.1, hi=6)
one("log1p", torch.log1p, lo=-0.9)
one("tan", torch.tan, lo=-1.4, hi=1.4)
for n in "asin acos atanh erfinv".split():
    one(n, getattr(torch, n), lo=-0.95, hi=0.95)
one("acosh", torch.acosh, lo=1.05)
one("polygamma", lambda x: torch.polygamma(2, x), lo=0.3, hi=5)
one("logit", torch.logit, lo=0.05, hi=0.95)
f.case("logit/eps", lambda x: torch.logit(x, 0.2), f.rand(19, lo=0, hi=1))
f.case("round/decimals", lambda x: torch.round(x, decimals=2), f.rand(19))
f.case("clamp", lambda x: torch.clamp(x, -0.5, 1.0), f.rand(19))
f.case("clamp/tensors", torch.clamp, f.rand(3, 7), f.rand(7, lo=-1, hi=-0.5), f.rand(3, 1, lo=0.5, hi=1))
f.case("pow/number", lambda x: torch.pow(x, 2.5), f.rand(19, lo=0.1, hi=4))
f.case("pow/negative base", lambda x: torch.pow(x, 3.0), f.rand(19))
f.case("pow/base", lambda x: torch.pow(2.5, x), f.rand(19))
f.case("add/number", lambda x: x + 1.25, f.rand(5))
f.case("sub/number", lambda x: 1.25 - x, f.rand(5))
f.case("mul/number", lambda x: x * -0.75, f.rand(5))
f.case("div/number", lambda x: 3 / x, f.rand(5, lo=0.5))
f.case("add/alpha", lambda a, b: torch.add(a, b, alpha=0.3), f.rand(3, 4), f.rand(4))
f.case("sub/alpha", lambda a, b: torch.sub(a, b, alpha=0.3), f.rand(3, 4), f.rand(4))
f.case("addcmul", lambda x, a, b: torch.addcmul(x, a, b, value=0.7), f.rand(3, 4), f.rand(4), f.rand(3, 1))
f.case("addcdiv", lambda x, a, b: torch.addcdiv(x, a, b, value=0.7), f.rand(3, 4), f.rand(4), f.rand(3, 1, lo=0.5))
f.case("lerp", torch.lerp, f.rand(3, 4), f.rand(3, 4), f.rand(3, 4, lo=0, hi=1))
f.case("lerp/number", lambda a, b: torch.lerp(a, b, 0.3), f.rand(3, 4), f.rand(4))
f.case("where", torch.where, f.mask(3, 4), f.rand(3, 4), f.rand(4))
f.case("nan_to_num", lambda x: torch.nan_to_num(x), torch.tensor([1.0, float("inf"), -2.0, float("nan")], dtype=torch.float64))

two("add", torch.add)
two("sub", torch.sub)
two("mul", torch.mul)
two("div", torch.div, b=(0.5, 3.0))
two("pow", torch.pow, a=(0.2, 3.0))
two("remainder", torch.remainder, b=(0.5, 3.0))
two("fmod", torch.fmod, b=(0.5, 3.0))
two("floor_divide", torch.floor_divide, b=(0.5, 3.0), grad=False)
two("maximum", torch.maximum)
two("minimum", torch.minimum)
two("atan2", torch.atan2)
two("hypot", torch.hypot)
two("copysign", torch.copysign)
two("xlogy", torch.xlogy, b=(0.2, 3.0))
two("logaddexp", torch.logaddexp)
two("heaviside", torch.heaviside, grad=False)
for n in "eq ne lt le gt ge logical_and logical_or logical_xor isclose".split():
    f.case(n, getattr(torch, n), f.ints(3, 4, below=3).double(), f.ints(4, below=3).double(), grad=False)
for n in "isnan isinf isfinite isposinf isneginf logical_not".split():
    f.case(n, getattr(torch, n), torch.tensor([1.0, 0.0, float("inf"), -float("inf"), float("nan")], dtype=torch.float64), grad=False)
for n in "bitwise_and bitwise_or bitwise_xor".split():
    f.case(n, getattr(torch, n), f.ints(3, 4, below=99, low=-99), f.ints(4, below=99, low=-99))
for n in "bitwise_left_shift bitwise_right_shift".split():
    f.case(n, getattr(torch, n), f.ints(3, 4, below=99, low=-99), f.ints(4, below=9))
f.case("bitwise_not", torch.bitwise_not, f.ints(7, below=99, low=-99))
for n in "remainder fmod floor_divide".split():
    f.case(n + "/integers", getattr(torch, n), f.ints(3, 4, below=99, low=-99), f.ints(4, below=9, low=1) * torch.tensor([1, -1, 1, -1]))

for n in "relu silu mish softsign tanhshrink relu6 hardsigmoid hardswish selu logsigmoid hardshrink softshrink".split():
    one(n, getattr(F, n), lo=-7, hi=7)
one("leaky_relu", lambda x: F.leaky_relu(x, 0.2))
one("elu", lambda x: F.elu(x, 0.7))
one("celu", lambda x: F.celu(x, 0.5))
one("gelu", F.gelu, lo=-7, hi=7)
one("gelu/tanh", lambda x: F.gelu(x, approximate="tanh"))
one("softplus", F.softplus, lo=-7, hi=25)
one("softplus/beta", lambda x: F.softplus(x, beta=2.0))
one("hardtanh", lambda x: F.hardtanh(x, -0.5, 0.7))
one("threshold", lambda x: F.threshold(x, 0.1, 20.0))
f.case("prelu", F.prelu, f.rand(2, 3, 4, 5), f.rand(3))
f.case("prelu/one", F.prelu, f.rand(2, 3), f.rand(1))
f.case("glu", lambda x: F.glu(x, 1), f.rand(2, 6, 3))
f.save()
