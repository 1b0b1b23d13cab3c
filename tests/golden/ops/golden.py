"""What the families of op cases share: runs each case in PyTorch, in f64 and f32, and writes <family>.safetensors.

    <case>/x0, x1, ...    inputs, f64 (exact in f32) or integers
    <case>/y0, y1, ...    results in f64; <case>/y0.err: PyTorch's own largest error in f32, f64[]
    <case>/dy0, ...       the gradients fed in, for floating results
    <case>/dx0, ...       the gradients of floating inputs, in f64; <case>/dx0.err as above

A case's name is "op" or "op/variant". The version of PyTorch is in the file's metadata.
"""
import json
import os
import struct
import zlib

import numpy as np
import torch

torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))


class Family:
    def __init__(self, name):
        self.name, self.tensors, self.random = name, {}, np.random.RandomState(zlib.crc32(name.encode()))

    # Inputs. Floating ones are rounded to f32, so that both precisions see the same numbers.
    def rand(self, *shape, lo=-1.5, hi=1.5):
        return torch.from_numpy(np.asarray(self.random.uniform(lo, hi, shape)).astype(np.float32).astype(np.float64))

    def distinct(self, *shape, lo=-2.0, hi=2.0):
        """No ties: a shuffled grid."""
        n = int(np.prod(shape, dtype=np.int64))
        grid = lo + (hi - lo) * (np.arange(n) + 0.3) / max(n, 1)
        return torch.from_numpy(self.random.permutation(grid).astype(np.float32).astype(np.float64).reshape(shape))

    def ints(self, *shape, below, low=0):
        return torch.from_numpy(np.asarray(self.random.randint(low, below, shape)).astype(np.int64))

    def mask(self, *shape):
        return torch.from_numpy(np.asarray(self.random.randint(0, 2, shape)).astype(bool))

    def case(self, name, f, *inputs, grad=True):
        """Runs f(*inputs) -> a tensor or several. grad=False: no gradients to compare."""
        if f"{name}/y0" in self.tensors:
            raise ValueError(f"two cases are named {name}")

        def run(dtype, dys):
            xs = [x.detach().clone().to(dtype).requires_grad_(grad) if x.is_floating_point() else x for x in inputs]
            ys = f(*xs)
            ys = list(ys) if isinstance(ys, (tuple, list)) else [ys]
            roots = [y for y in ys if y.is_floating_point() and y.requires_grad]
            if dys is None:
                dys = [self.rand(*y.shape) for y in roots]
            gs = []
            if roots:
                wanted = [x for x in xs if x.is_floating_point()]
                gs = torch.autograd.grad(roots, wanted, [d.to(dtype) for d in dys], allow_unused=True)
                gs = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, gs)]
            return [y.detach() for y in ys], dys, gs

        ys, dys, dxs = run(torch.float64, None)
        ys32, _, dxs32 = run(torch.float32, dys)
        put = lambda key, t: self.tensors.__setitem__(f"{name}/{key}", t)
        for i, x in enumerate(inputs):
            put(f"x{i}", x)
        at = 0
        for i, (y, y32) in enumerate(zip(ys, ys32)):
            put(f"y{i}", y)
            if y.is_floating_point():
                put(f"y{i}.err", error(y32, y))
        for i, d in enumerate(dys):
            put(f"dy{i}", d)
        for i, x in enumerate(inputs):
            if x.is_floating_point() and dxs:
                put(f"dx{i}", dxs[at])
                put(f"dx{i}.err", error(dxs32[at], dxs[at]))
                at += 1

    def save(self):
        header = {"__metadata__": {"torch": torch.__version__, "made_by": f"tests/golden/ops/{self.name}.py"}}
        blobs, at = [], 0
        names = {torch.float64: "F64", torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}
        for key, t in self.tensors.items():
            t = t.detach().contiguous()
            blob = t.numpy().tobytes()
            header[key] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
            blobs.append(blob)
            at += len(blob)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(HERE, self.name + ".safetensors"), "wb") as out:
            out.write(struct.pack("<Q", len(text)))
            out.write(text)
            out.writelines(blobs)
        print(self.name, len(self.tensors), "tensors,", 8 + len(text) + at, "bytes")


def error(given, exact):
    """The largest |given - exact| of finite elements."""
    d = (given.double() - exact).abs()
    d = d[torch.isfinite(d)]
    return d.max() if d.numel() else torch.zeros((), dtype=torch.float64)
