#!/usr/bin/env python3
"""The dtypes of results by PyTorch: python3 tests/golden/ops/dtypes.py writes dtypes.txt.

A line: op, a's dtype, b's dtype, then the result's for b a tensor, b 0-dimensional, a 0-dimensional, or - for an error.
Numbers: "int", "float" and "truth" as b's dtype stand for 2, for 2.0 and 0.5 (which always agree), and for True; then there
is one result, for a a tensor. NUMBERS are ops that take a number alone, or have no form for tensors of other dtypes; a name
that ends in _ is in place.
"""
import os

import torch

NAMES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32,
         "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool}
OPS = {"add": torch.add, "mul": torch.mul, "sub": torch.sub, "div": torch.div, "pow": torch.pow, "floor_divide": torch.floor_divide,
       "remainder": torch.remainder, "eq": torch.eq, "lt": torch.lt, "maximum": torch.maximum, "bitwise_and": torch.bitwise_and,
       "where": lambda a, b: torch.where(torch.ones(2, dtype=torch.bool), a, b)}

WITH_NUMBERS = ("add", "mul", "sub", "div", "pow", "eq", "lt", "remainder", "floor_divide", "where")
NUMBERS = {"fmod": torch.fmod, "rsub": lambda a, b: b - a, "rpow": lambda a, b: b ** a, "clamp": lambda a, b: torch.clamp(a, b),
           "clamp_max": lambda a, b: torch.clamp(a, max=b), "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
           "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"), "add_alpha": lambda a, b: torch.add(a, a, alpha=b),
           "add_": lambda a, b: a.add_(b), "mul_": lambda a, b: a.mul_(b), "div_": lambda a, b: a.div_(b),
           "clamp_": lambda a, b: a.clamp_(b), "masked_fill": lambda a, b: a.masked_fill(torch.ones(2, dtype=torch.bool), b),
           "where_numbers": lambda a, b: torch.where(torch.ones(2, dtype=torch.bool), b, b)}


def result(op, a, b):
    try:
        t = {**OPS, **NUMBERS}[op](a, b).dtype
        return next(n for n, d in NAMES.items() if d == t)
    except (RuntimeError, TypeError):
        return "-"


lines = []
for op in OPS:
    for m, s in NAMES.items():
        for n, t in NAMES.items():
            a, b, p, q = torch.ones(2, dtype=s), torch.ones(2, dtype=t), torch.ones((), dtype=s), torch.ones((), dtype=t)
            lines.append(f"{op} {m} {n} {result(op, a, b)} {result(op, a, q)} {result(op, p, b)}")
for op in (*WITH_NUMBERS, *NUMBERS):
    for m, s in NAMES.items():
        of = lambda b: result(op, torch.ones(2, dtype=s), b)
        assert of(2.0) == of(0.5) or op == "masked_fill", op
        lines += [f"{op} {m} int {of(2)}", f"{op} {m} float {of(2.0)}", f"{op} {m} truth {of(True)}"]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "dtypes.txt"), "w") as out:
    out.write(f"# PyTorch {torch.__version__}, by dtypes.py\n" + "\n".join(lines) + "\n")
