"""Writes make_grid.safetensors: what torchvision's make_grid gives (made with torchvision 0.14).

    python3 make_grid.py

x.<dtype>: the images; y.<case>: the results of the cases of save_image_test.cc.
"""
import json
import os
import struct

import torch
from torchvision.utils import make_grid

CASES = {
    "default": ("x.f32", {}),
    "u8": ("x.u8", dict(nrow=3, padding=1, pad_value=200)),
    "gray": ("gray", dict(nrow=2)),
    "one": ("one", {}),
    "matrix": ("matrix", {}),
    "normalized": ("x.f32", dict(nrow=4, normalize=True)),
    "range": ("x.f32", dict(normalize=True, value_range=(-0.5, 0.75), pad_value=0.5)),
    "each": ("x.f32", dict(nrow=1, padding=0, normalize=True, scale_each=True)),
}


def main():
    torch.manual_seed(3)
    tensors = {
        "x.f32": torch.randn(5, 3, 4, 6),
        "x.u8": torch.randint(0, 256, (5, 3, 4, 6), dtype=torch.uint8),
        "gray": torch.rand(3, 1, 4, 3),
        "one": torch.rand(1, 1, 4, 3),
        "matrix": torch.rand(4, 3),
    }
    for name, (x, options) in CASES.items():
        tensors["y." + name] = make_grid(tensors[x], **options)
    names = {torch.float32: "F32", torch.uint8: "U8"}
    header, data = {}, b""
    for name, t in sorted(tensors.items(), key=lambda item: item[1].dtype != torch.float32):
        raw = t.contiguous().numpy().tobytes()
        header[name] = dict(dtype=names[t.dtype], shape=list(t.shape), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_grid.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


main()
