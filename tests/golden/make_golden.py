#!/usr/bin/env python3
"""Makes the golden values in this folder with PyTorch, in f64:

    python3 tests/golden/make_golden.py          # needs python3-torch; the tests themselves do not

mnist.safetensors       training steps of the MNIST network with weights from a formula (see `formula`)
power_sgd.safetensors   <feedback>/<backward>/<parameter>: gradients that PowerSGD gives on two ranks (see `power_sgd_gradient`)

optimizers.py makes those of optimizers and schedules. The version of PyTorch is in each file's metadata.
"""
import json
import math
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))


def save(name, tensors):
    """Writes a safetensors file: u64 length of the header, the header in JSON, the bytes."""
    header = {"__metadata__": {"torch": torch.__version__, "made_by": "tests/golden/" + os.path.basename(sys.argv[0])}}
    blobs, at = [], 0
    for key, t in tensors.items():
        t = t.detach().contiguous()
        dtype = {torch.float64: "F64", torch.int64: "I64"}[t.dtype]
        blob = t.numpy().tobytes()
        header[key] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(HERE, name), "wb") as out:
        out.write(struct.pack("<Q", len(text)))
        out.write(text)
        for blob in blobs:
            out.write(blob)
    print(name, len(tensors), "tensors,", 8 + len(text) + at, "bytes")


def formula(shape, key, scale=1.0):
    """scale * u, u in [-1, 1): exact in every language: u = ((2654435761 i + 40503 key) mod 2^32) / 2^31 - 1."""
    n = int(np.prod(shape, dtype=np.int64))
    i = np.arange(n, dtype=np.uint64)
    u = ((i * np.uint64(2654435761) + np.uint64(40503 * key)) & np.uint64(0xFFFFFFFF)).astype(np.float64)
    return torch.from_numpy(u / 2147483648.0 - 1.0).reshape(shape) * scale


def make_mnist():
    """conv 1-32-64 3x3, pool 2, 9216-128-10, without dropout; batch 4; Adadelta lr 1, StepLR gamma 0.7 after each step."""
    shapes = {
        "conv1.weight": (32, 1, 3, 3), "conv1.bias": (32,), "conv2.weight": (64, 32, 3, 3), "conv2.bias": (64,),
        "fc1.weight": (128, 9216), "fc1.bias": (128,), "fc2.weight": (10, 128), "fc2.bias": (10,),
    }
    fan_in = {"conv1": 9, "conv2": 288, "fc1": 9216, "fc2": 128}
    p = {}
    for k, (name, shape) in enumerate(shapes.items()):
        # A power of two near 1/sqrt(fan_in), so that the product is exact.
        scale = 2.0 ** round(math.log2(1 / math.sqrt(fan_in[name.split(".")[0]])))
        p[name] = formula(shape, k + 1, scale).requires_grad_()
    x = formula((4, 1, 28, 28), 100)
    target = torch.tensor([3, 8, 0, 5])
    opt = torch.optim.Adadelta(p.values(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.7)
    out, losses = {"target": target}, []
    for step in range(4):
        h = F.relu(F.conv2d(F.relu(F.conv2d(x, p["conv1.weight"], p["conv1.bias"])), p["conv2.weight"], p["conv2.bias"]))
        h = torch.flatten(F.max_pool2d(h, 2), 1)
        h = F.relu(F.linear(h, p["fc1.weight"], p["fc1.bias"]))
        logits = F.linear(h, p["fc2.weight"], p["fc2.bias"])
        loss = F.cross_entropy(logits, target)
        opt.zero_grad()
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out["logits"] = logits
            for name, v in p.items():
                g = v.grad.reshape(-1)
                stride = max(1, g.numel() // 61)
                out[f"grad/{name}"] = g[::stride][:61].clone()       # every stride-th element, 61 at most
                out[f"grad_norm/{name}"] = g.norm()
                out[f"grad_sum/{name}"] = g.sum()
        opt.step()
        schedule.step()
    out["losses"] = torch.stack(losses)
    for name, v in p.items():
        flat = v.detach().reshape(-1)
        stride = max(1, flat.numel() // 61)
        out[f"param/{name}"] = flat[::stride][:61].clone()
    save("mnist.safetensors", out)


POWER_SGD_SHAPES = {"wide": (12, 10), "bias": (7,), "conv": (8, 3, 3)}


def power_sgd_gradient(rank, backward, parameter, shape):
    """Of rank 2 in backward 2, the first that is compressed, so that what follows depends on no random start."""
    key = 100 * backward + 10 * parameter
    if backward != 2 or len(shape) < 2:
        return formula(shape, key + rank)
    n, m = shape[0], int(np.prod(shape[1:]))
    return (formula((n, 2), key + 3) @ formula((2, m), key + 4) * (rank + 1)).reshape(shape)


def power_sgd_rank(rank, feedback, directory):
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd

    dist.init_process_group("gloo", init_method=f"file://{directory}/store_{feedback}", rank=rank, world_size=2)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, shape in POWER_SGD_SHAPES.items():
                self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)))

        def forward(self, backward):
            return sum((p * power_sgd_gradient(rank, backward, i, p.shape)).sum() for i, p in enumerate(self.parameters()))

    ddp = torch.nn.parallel.DistributedDataParallel(Net())
    state = power_sgd.PowerSGDState(None, 2, start_powerSGD_iter=2, use_error_feedback=feedback, warm_start=True)
    ddp.register_comm_hook(state, power_sgd.powerSGD_hook)
    out = {}
    for backward in range(7):
        ddp.zero_grad(set_to_none=True)
        ddp(backward).backward()
        if backward in (1, 2, 4, 6):
            for name, p in ddp.module.named_parameters():
                out[f"{'feedback' if feedback else 'plain'}/{backward}/{name}"] = p.grad.clone()
    if rank == 0:
        torch.save(out, f"{directory}/{feedback}")
    dist.barrier()
    dist.destroy_process_group()


def make_power_sgd():
    import tempfile

    import torch.multiprocessing as mp

    out = {}
    with tempfile.TemporaryDirectory() as directory:
        for feedback in (True, False):
            mp.spawn(power_sgd_rank, (feedback, directory), nprocs=2)
            out.update(torch.load(f"{directory}/{feedback}"))
    save("power_sgd.safetensors", out)


if __name__ == "__main__":
    make_mnist()
    make_power_sgd()
