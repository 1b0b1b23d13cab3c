"""Looks for the names of PyTorch in the table of functions of docs/guide/from-pytorch.md; needs torch, which tests do not:

    python3 tests/docs/from_pytorch.py
"""
import os
import re

import torch

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "guide", "from-pytorch.md")
PLACES = (torch, torch.nn.functional, torch.Tensor, torch.linalg, torch.fft, torch.nn.utils.rnn)


def is_there(name):
    value = [p for p in PLACES if hasattr(p, name.split(".")[-1])]
    return bool(value)


def main():
    text = open(PAGE, encoding="utf-8").read().split("## Functions")[1]
    names = [n for row in re.findall(r"^\| (.*?) \|", text, re.M) for n in re.findall(r"`([\w.]+)`", row)]
    missing = [n for n in names if not is_there(n)]
    print(f"{len(names)} names, PyTorch {torch.__version__}; not there: {' '.join(missing) or 'none'}")
    raise SystemExit(bool(missing))


main()
