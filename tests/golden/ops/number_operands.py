#!/usr/bin/env python3
"""Integers beside tensors of integers that cannot hold them, by PyTorch:
python3 tests/golden/ops/number_operands.py writes number_operands.txt.

A line: op, the dtype of x = [7, 100], the number, then the result's dtype and its two elements, or error.
"""
import os

import torch
from torch.nn import functional as F

DTYPES = {"u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "f32": torch.float32, "bool": torch.bool}
NUMBERS = {"u8": (300, -3, -255, -256), "i8": (300, -300, 128), "i16": (70000, -70000), "i32": (2**40 + 5, -(2**31) - 3)}
FIRST = torch.tensor([True, False])


def item(x, n):
    x[0] = n
    return x


OPS = {
    "add": lambda x, n: x + n, "sub": lambda x, n: x - n, "rsub": lambda x, n: n - x, "mul": lambda x, n: x * n,
    "div": lambda x, n: x / n, "rdiv": lambda x, n: n / x, "rpow": lambda x, n: torch.pow(n, x),
    "pow": torch.pow,
    "add_": lambda x, n: x.add_(n), "mul_": lambda x, n: x.mul_(n),
    "add_alpha": lambda x, n: torch.add(x, x, alpha=n),
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "where": lambda x, n: torch.where(FIRST, x, n), "where_first": lambda x, n: torch.where(FIRST, n, x),
    "clamp_min": lambda x, n: torch.clamp(x, min=n), "clamp_max": lambda x, n: torch.clamp(x, max=n),
    "full_like": torch.full_like, "fill_": lambda x, n: x.fill_(n), "masked_fill": lambda x, n: x.masked_fill(FIRST, n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0]), n), "scatter": lambda x, n: x.scatter(0, torch.tensor([0]), n),
    "item": item,
}
for name in ("remainder", "fmod", "floor_divide"):
    OPS[name] = getattr(torch, name)
OPS["div_trunc"] = lambda x, n: torch.div(x, n, rounding_mode="trunc")

if __name__ == "__main__":
    lines = [f"# PyTorch {torch.__version__}, by number_operands.py"]
    for op, f in OPS.items():
        for dtype, numbers in NUMBERS.items():
            for n in numbers:
                if (op, n) in (("pow", -3), ("pow", -255)) or dtype == "u8" and n == -256 and op in ("remainder", "fmod", "floor_divide", "div_trunc"):
                    continue  # docs/api/dtypes.md: negative powers, and divisors of 0 (the low bits of -256)
                try:
                    y = f(torch.tensor([7, 100], dtype=DTYPES[dtype]), n)
                    found = next(k for k, t in DTYPES.items() if t == y.dtype)
                    lines.append(f"{op} {dtype} {n} {found} {float(y[0])!r} {float(y[1])!r}")
                except RuntimeError:
                    lines.append(f"{op} {dtype} {n} error")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "number_operands.txt"), "w") as out:
        out.write("\n".join(lines) + "\n")
