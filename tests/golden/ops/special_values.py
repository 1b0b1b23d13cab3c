#!/usr/bin/env python3
"""Element-wise ops at zeros, kinks, infinities, NaN and the ends of the range, by PyTorch in f64:
python3 tests/golden/ops/special_values.py writes special_values.safetensors.

Each op has a matrix with rows x, y, dx, or a, b, y, da, db. Gradients are for dy = 1. All inputs but the smallest and the largest
are exact in every floating dtype, so rounding y gives the result in the others.
"""
import torch
from golden import Family
from torch.nn import functional as F

inf, nan = float("inf"), float("nan")
POSITIVE = [0.0, 2.0**-149, 2.0**-24, 2.0**-17, 2.0**-10, 0.25, 0.5, 2047 / 2048, 1.0, 1.5, 2.0, 2.5, 3.0, 6.0, 7.8125, 21.0, 300.0, 2.0**15, 2.0**66, inf]
X = [s * v for v in POSITIVE for s in (1, -1)] + [nan]
A = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, 2.0**-13, inf, -inf, nan]

UNARY = {name: getattr(torch, name) for name in """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv
    exp exp2 expm1 floor frac lgamma log log10 log1p log2 logit neg rad2deg reciprocal round rsqrt sigmoid sign sin sinc sinh sqrt
    square tan tanh trunc""".split()}
UNARY.update({name: getattr(F, name) for name in """celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish
    relu relu6 selu silu softplus softshrink softsign tanhshrink""".split()})
UNARY.update({
    "clamp": lambda x: torch.clamp(x, -1, 1),
    "clamp_min": lambda x: torch.clamp(x, min=0),
    "clamp_max": lambda x: torch.clamp(x, max=0),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "logit_eps": lambda x: torch.logit(x, 0.25),
    "nan_to_num": lambda x: torch.nan_to_num(x, posinf=1.0, neginf=-1.0),
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "add_1": lambda x: x + 1,
    "1_sub": lambda x: 1 - x,
    "mul_2": lambda x: x * 2,
    "div_2": lambda x: x / 2,
    "1_div": lambda x: 1 / x,
    "pow_0": lambda x: x**0,
    "pow_1.5": lambda x: x**1.5,
    "pow_1": lambda x: x**1,
    "pow_2": lambda x: x**2,
    "pow_3": lambda x: x**3,
    "pow_minus_1": lambda x: x**-1,
    "0_pow": lambda x: torch.pow(0, x),
    "2_pow": lambda x: torch.pow(2, x),
    "remainder_2": lambda x: torch.remainder(x, 2),
    "remainder_inf": lambda x: torch.remainder(x, inf),
    "fmod_2": lambda x: torch.fmod(x, 2),
    "fmod_inf": lambda x: torch.fmod(x, inf),
})
BINARY = {name: getattr(torch, name) for name in """add atan2 copysign div floor_divide fmod hypot logaddexp maximum minimum mul pow
    remainder sub xlogy""".split()}
BINARY["div_trunc"] = lambda a, b: torch.div(a, b, rounding_mode="trunc")
NO_GRADIENT = ("floor_divide",)


def rows(op, f, *inputs):
    for values in zip(*(i.tolist() for i in inputs)):
        # One element at a time: vector code of PyTorch's own differs at the ends of the range.
        xs = [torch.tensor(v, dtype=torch.float64, requires_grad=op not in NO_GRADIENT) for v in values]
        y = f(*xs)
        grads = torch.autograd.grad(y, xs, allow_unused=True) if y.requires_grad else [None] * len(xs)
        grads = [0.0 if g is None else g.item() for g in grads]
        yield [*values, y.item(), *grads]


if __name__ == "__main__":
    family = Family("special_values")
    x = torch.tensor(X, dtype=torch.float64)
    a = torch.tensor(A, dtype=torch.float64)
    pairs = (a.repeat_interleave(len(A)), a.repeat(len(A)))
    for functions, inputs in ((UNARY, (x,)), (BINARY, pairs)):
        for op, f in functions.items():
            family.tensors[op] = torch.tensor(list(rows(op, f, *inputs)), dtype=torch.float64)
    family.save()
