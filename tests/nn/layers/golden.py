"""What the families of layer cases share: runs each layer in PyTorch, in f64 and f32, and writes <family>.safetensors.

    <case>/state/<name>      the state that both sides load, f64 (exact in f32) or integers
    <case>/x0, x1, ...       inputs
    <case>/<mode>/y0, ...    results of mode "train" or "eval" in f64; y0.err: PyTorch's own largest error in f32
    <case>/<mode>/dy0, ...   the gradients fed in
    <case>/<mode>/dx0, ...   the gradients of floating inputs, with .err as above
    <case>/<mode>/d/<name>   the gradients of parameters, with .err
    <case>/after/<name>      the buffers after the run in training

The metadata has the order of each state's names under "<case>", joined by commas.
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
    def __init__(self, name, folder=HERE):
        self.name, self.folder, self.tensors, self.names = name, folder, {}, {}
        self.random = np.random.RandomState(zlib.crc32(name.encode()))

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

    def state_of(self, layer):
        """A state of the layer's names with numbers of this file's own: default ones hide mistakes (ones, zeros)."""
        parameters = {n for n, _ in layer.named_parameters()}
        state = {}
        for name, t in layer.state_dict().items():
            if name in parameters:
                state[name] = self.rand(*t.shape, lo=-0.7, hi=0.7)
            elif name.endswith("running_mean"):
                state[name] = self.rand(*t.shape)
            elif name.endswith("running_var"):
                state[name] = self.rand(*t.shape, lo=0.5, hi=1.5)
            else:
                state[name] = t.detach().float().double() if t.is_floating_point() else t
        return state

    def case(self, name, make, *inputs, call=None, modes=("train", "eval"), grad=True):
        """make() -> the layer; call(layer, *inputs) -> a tensor or several, layer(*inputs) if none."""
        if name in self.names:
            raise ValueError(f"two cases are named {name}")
        call = call or (lambda layer, *xs: layer(*xs))
        torch.manual_seed(1)
        state = self.state_of(make())
        self.names[name] = list(state)
        put = lambda key, t: self.tensors.__setitem__(f"{name}/{key}", t)
        for key, t in state.items():
            put(f"state/{key}", t)
        for i, x in enumerate(inputs):
            put(f"x{i}", x)

        def run(dtype, mode, dys):
            layer = make().to(dtype)
            layer.load_state_dict(state)
            layer.train(mode == "train")
            xs = [x.detach().clone().to(dtype).requires_grad_(grad) if x.is_floating_point() else x for x in inputs]
            ys = call(layer, *xs)
            ys = list(ys) if isinstance(ys, (tuple, list)) else [ys]
            roots = {i: y for i, y in enumerate(ys) if y.requires_grad}
            dys = {i: self.rand(*y.shape) for i, y in roots.items()} if dys is None else dys
            out = {f"y{i}": y.detach() for i, y in enumerate(ys)}
            if roots:
                wanted = {f"dx{i}": x for i, x in enumerate(xs) if x.requires_grad}
                wanted.update({f"d/{n}": p for n, p in layer.named_parameters()})
                given = [d.to(dtype) for d in dys.values()]
                gs = torch.autograd.grad(list(roots.values()), list(wanted.values()), given, allow_unused=True)
                for (key, t), g in zip(wanted.items(), gs):
                    out[key] = torch.zeros_like(t) if g is None else g
            return out, dys, dict(layer.named_buffers())

        for mode in modes:
            out, dys, buffers = run(torch.float64, mode, None)
            out32, _, _ = run(torch.float32, mode, dys)
            for key, t in out.items():
                put(f"{mode}/{key}", t)
                if t.is_floating_point():
                    put(f"{mode}/{key}.err", error(out32[key], t))
            for i, d in dys.items():
                put(f"{mode}/dy{i}", d)
            if mode == "train":
                for key, t in buffers.items():
                    put(f"after/{key}", t)

    def save(self):
        header = {"__metadata__": {"torch": torch.__version__, "made_by": self.name + ".py"}}
        header["__metadata__"].update({name: ",".join(keys) for name, keys in self.names.items()})
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
        with open(os.path.join(self.folder, self.name + ".safetensors"), "wb") as out:
            out.write(struct.pack("<Q", len(text)))
            out.write(text)
            out.writelines(blobs)
        print(self.name, len(self.names), "layers,", 8 + len(text) + at, "bytes")


def error(given, exact):
    """The largest |given - exact| of finite elements."""
    d = (given.double() - exact).abs()
    d = d[torch.isfinite(d)]
    return d.max() if d.numel() else torch.zeros((), dtype=torch.float64)
