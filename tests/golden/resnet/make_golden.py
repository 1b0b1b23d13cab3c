#!/usr/bin/env python3
"""Makes the golden values in this folder with torchvision:

    python3 tests/golden/resnet/make_golden.py           # needs torch and torchvision; the tests themselves do not

names.txt          of every network: how many tensors and elements its state has, and a hash of their names and shapes;
                   the names themselves of two networks
step.safetensors   one training step of two networks with numbers from a formula: the loss and the logits, and of every
                   gradient, updated parameter and buffer the numbers of `digest`

Whole tensors are too large to keep. This writes all elements of a step from a file of weights, for `compare_step`:

    python3 tests/golden/resnet/make_golden.py --step resnet50 --weights resnet50.safetensors --output step.safetensors
"""
import argparse
import json
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "tools"))
from export_weights import write_safetensors

NETWORKS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d",
            "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2"]
STEPS = ["resnet18", "resnet50"]
BATCH = 4
LR, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4


def fnv1a(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def uniform(name, n):
    """n numbers in [-1, 1), multiples of 2^-15: exact in every language and floating-point format. The upper 16 bits of
    splitmix64 of the numbers from the name's hash on."""
    z = (np.arange(n, dtype=np.uint64) + np.uint64(fnv1a(name))) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(48)).astype(np.float64) / 32768 - 1


def power_of_two(x):
    return 2.0 ** np.floor(np.log2(x) + 0.5)


def value_of(name, shape):
    """The tensor of a network's state, as a multiple of uniform numbers by a power of two."""
    u = torch.from_numpy(uniform(name, int(np.prod(shape, dtype=np.int64)))).reshape(shape)
    if name.endswith("num_batches_tracked"):
        return torch.tensor(41)
    if len(shape) == 4:
        return u * power_of_two(np.sqrt(6 / (shape[0] * shape[2] * shape[3])))
    if len(shape) == 2:
        return u * power_of_two(1 / np.sqrt(shape[1]))
    if name.endswith("running_var"):
        return 1 + u / 2
    return 1 + u / 4 if name.endswith("weight") else u / 8


def momentum_of(name, shape):
    """What earlier steps left in SGD's buffer."""
    return torch.from_numpy(uniform(name + "/momentum", int(np.prod(shape)))).reshape(shape) / 256


def batch_of(size):
    x = torch.from_numpy(uniform("x", BATCH * 3 * size * size)).reshape(BATCH, 3, size, size) * 2
    return x, torch.tensor([3, 141, 592, 653])


def training_step(network, state, size, dtype):
    net = torchvision.models.get_model(network)
    net.load_state_dict(state)
    net.to(dtype).train()
    x, target = batch_of(size)
    opt = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    for name, p in net.named_parameters():
        opt.state[p]["momentum_buffer"] = momentum_of(name, p.shape).to(dtype)
    logits = net(x.to(dtype))
    loss = F.cross_entropy(logits, target)
    loss.backward()
    grads = {name: p.grad.clone() for name, p in net.named_parameters()}
    opt.step()
    return {"logits": logits.detach(), "loss": loss.detach(), "grad": grads,
            "param": {name: p.detach() for name, p in net.named_parameters()}, "buffer": dict(net.named_buffers())}


def digest(name, t):
    """Norm; two sums with random weights; first, middle and last element."""
    t = t.double().reshape(-1)
    sums = [torch.dot(t, torch.from_numpy(uniform(f"{name}/sum{i}", len(t)))) for i in range(2)]
    return torch.stack([t.norm(), *sums, t[0], t[len(t) // 2], t[-1]])


def write_names():
    lines = ["# made by make_golden.py with torchvision " + torchvision.__version__]
    for network in NETWORKS:
        net = torchvision.models.get_model(network)
        state = net.state_dict()
        names = [f"{name} [{','.join(map(str, t.shape))}]" for name, t in state.items()]
        parameters = sum(p.numel() for p in net.parameters())
        lines.append(f"{network} {len(state)} {parameters} {fnv1a(''.join(n + chr(10) for n in names)):016x}")
        if network in STEPS:
            lines += ["  " + n for n in names]
    with open(os.path.join(HERE, "names.txt"), "w") as out:
        out.write("\n".join(lines) + "\n")


def write_digests(size):
    out = {}
    for network in STEPS:
        net = torchvision.models.get_model(network)
        state = {name: value_of(name, tuple(t.shape)) for name, t in net.state_dict().items()}
        double, single = (training_step(network, state, size, dtype) for dtype in (torch.float64, torch.float32))
        out[f"{network}/logits"], out[f"{network}/loss"] = double["logits"], double["loss"]
        for kind in ("grad", "param", "buffer"):
            out[f"{network}/{kind}"] = torch.stack([digest(name, t) for name, t in double[kind].items()])
        # How far f32 takes PyTorch from its own gradients in f64.
        out[f"{network}/grad_error"] = torch.stack(
            [(single["grad"][name].double() - g).norm() for name, g in double["grad"].items()])
    save(os.path.join(HERE, "step.safetensors"), out, size)


def write_step(network, weights, path, size):
    state = read_safetensors(weights)
    double, single = (training_step(network, state, size, dtype) for dtype in (torch.float64, torch.float32))
    out = {}
    for precision, step in (("f64", double), ("f32", single)):
        out[f"{precision}/logits"], out[f"{precision}/loss"] = step["logits"], step["loss"]
        for kind in ("grad", "param", "buffer"):
            out.update({f"{precision}/{kind}/{name}": t for name, t in step[kind].items()})
    save(path, out, size, network=network)


def save(path, tensors, size, **metadata):
    metadata.update(torch=torch.__version__, torchvision=torchvision.__version__, size=size)
    print(path, write_safetensors(path, tensors, metadata), "bytes")


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        blob = bytearray(file.read())
    header.pop("__metadata__", None)
    dtypes = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "I64": torch.int64}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        t = torch.frombuffer(blob, dtype=torch.uint8, count=end - begin, offset=begin)
        tensors[name] = t.clone().view(dtypes[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--step", metavar="NETWORK", help="all elements of a step of this network")
    p.add_argument("--weights", help="from this file")
    p.add_argument("--output", help="to this file")
    p.add_argument("--size", type=int, default=64, help="height and width of the images")
    args = p.parse_args()
    if args.step:
        if not args.weights or not args.output:
            p.error("--step needs --weights and --output")
        return write_step(args.step, args.weights, args.output, args.size)
    write_names()
    write_digests(args.size)


if __name__ == "__main__":
    main()
