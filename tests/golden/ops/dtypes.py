#!/usr/bin/env python3
"""The dtypes of results by PyTorch: python3 tests/golden/ops/dtypes.py writes dtypes.txt.

A line: op, a's dtype, b's dtype, then the result's for b a tensor, b 0-dimensional, a 0-dimensional, or - for an error.
Numbers: "number" as b's dtype stands for a whole one, "fraction" for 0.5; then there is one result, for a a tensor.
"""
import os

import torch

NAMES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32,
         "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool}
OPS = {"add": torch.add, "mul": torch.mul, "sub": torch.sub, "div": torch.div, "pow": torch.pow, "floor_divide": torch.floor_divide,
       "remainder": torch.remainder, "eq": torch.eq, "lt": torch.lt, "maximum": torch.maximum, "bitwise_and": torch.bitwise_and,
       "where": lambda a, b: torch.where(torch.ones(2, dtype=torch.bool), a, b)}


def result(op, a, b):
    try:
        t = OPS[op](a, b).dtype
        return next(n for n, d in NAMES.items() if d == t)
    except (RuntimeError, TypeError):
        return "-"


lines = []
for op in OPS:
    for m, s in NAMES.items():
        for n, t in NAMES.items():
            a, b, p, q = torch.ones(2, dtype=s), torch.ones(2, dtype=t), torch.ones((), dtype=s), torch.ones((), dtype=t)
            lines.append(f"{op} {m} {n} {result(op, a, b)} {result(op, a, q)} {result(op, p, b)}")
        if op in ("add", "mul", "sub", "div", "pow", "eq", "lt", "remainder", "floor_divide"):
            lines.append(f"{op} {m} number {result(op, torch.ones(2, dtype=s), 2)}")
            lines.append(f"{op} {m} fraction {result(op, torch.ones(2, dtype=s), 0.5)}")
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "dtypes.txt"), "w") as out:
    out.write(f"# PyTorch {torch.__version__}, by dtypes.py\n" + "\n".join(lines) + "\n")
