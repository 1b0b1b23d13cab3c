#!/usr/bin/env python3
"""Makes the golden values in this folder with PyTorch, in f64:

    python3 tests/golden/make_golden.py          # needs python3-torch; the tests themselves do not

layers.safetensors      <case>/x0, x1, ...: inputs; <case>/y: result; <case>/dy: the gradient fed in; <case>/dx0, ...: gradients
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


_random = np.random.RandomState(20)


def rand(*shape, lo=-1.5, hi=1.5):
    return torch.from_numpy(_random.uniform(lo, hi, shape))


def ints(*shape, below):
    return torch.from_numpy(_random.randint(0, below, shape).astype(np.int64))


layers = {}


def case(name, f, *inputs):
    inputs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    y = f(*inputs)
    dy = rand(*y.shape)
    y.backward(dy)
    for i, x in enumerate(inputs):
        layers[f"{name}/x{i}"] = x
        if x.is_floating_point():
            layers[f"{name}/dx{i}"] = x.grad
    layers[f"{name}/y"] = y
    layers[f"{name}/dy"] = dy


def make_layers():
    case("linear", F.linear, rand(5, 7), rand(4, 7), rand(4))
    case("linear_without_bias", F.linear, rand(2, 3, 7), rand(4, 7))
    case("matmul_batched", torch.matmul, rand(2, 1, 3, 4), rand(5, 4, 2))

    def conv(name, x, w, bias=True, **options):
        args = [rand(*x), rand(*w)] + ([rand(w[0])] if bias else [])
        case(name, lambda *a: F.conv2d(*a, **options), *args)

    conv("conv2d", (2, 3, 6, 5), (4, 3, 3, 3))
    conv("conv2d_padding", (2, 3, 6, 5), (4, 3, 3, 3), padding=1)
    conv("conv2d_stride", (2, 3, 7, 6), (4, 3, 3, 3), stride=2, padding=1)
    conv("conv2d_dilation", (1, 2, 8, 7), (3, 2, 3, 3), dilation=2, padding=2)
    conv("conv2d_groups", (2, 4, 5, 5), (6, 2, 3, 3), groups=2, padding=1)
    conv("conv2d_depthwise", (2, 4, 5, 6), (4, 1, 3, 3), groups=4, padding=1, stride=2)
    conv("conv2d_1x1", (2, 5, 4, 3), (3, 5, 1, 1))
    conv("conv2d_uneven", (1, 2, 7, 9), (3, 2, 2, 5), stride=(2, 1), padding=(1, 2), bias=False)

    x = rand(3, 2, 4, 5)
    mean, var = rand(2), rand(2, lo=0.5, hi=2)

    def train_bn(x, w, b, m, v, momentum=0.1):
        m, v = m.detach().clone(), v.detach().clone()
        y = F.batch_norm(x, m, v, w, b, training=True, momentum=momentum, eps=1e-5)
        train_bn.stats = (m, v)
        return y

    for name, momentum in (("batch_norm_train", 0.1), ("batch_norm_train_momentum", 0.3)):
        case(name, lambda x, w, b: train_bn(x, w, b, mean, var, momentum), x, rand(2), rand(2))
        layers[f"{name}/mean"], layers[f"{name}/var"] = mean, var
        layers[f"{name}/new_mean"], layers[f"{name}/new_var"] = train_bn.stats
    case("batch_norm_eval", lambda x, w, b: F.batch_norm(x, mean, var, w, b, training=False, eps=1e-5),
         x, rand(2), rand(2))
    layers["batch_norm_eval/mean"], layers["batch_norm_eval/var"] = mean, var
    case("batch_norm_1d", lambda x, w, b: train_bn(x, w, b, mean, var), rand(6, 2), rand(2), rand(2))
    layers["batch_norm_1d/mean"], layers["batch_norm_1d/var"] = mean, var
    layers["batch_norm_1d/new_mean"], layers["batch_norm_1d/new_var"] = train_bn.stats

    image = rand(2, 3, 7, 6)
    case("max_pool2d", lambda x: F.max_pool2d(x, 2), image)
    case("max_pool2d_overlapping", lambda x: F.max_pool2d(x, 3, stride=2, padding=1), image)
    case("max_pool2d_dilation", lambda x: F.max_pool2d(x, 2, stride=1, dilation=2), image)
    case("max_pool2d_ceil", lambda x: F.max_pool2d(x, 2, stride=2, ceil_mode=True), image)
    case("avg_pool2d", lambda x: F.avg_pool2d(x, 2), image)
    case("avg_pool2d_padding", lambda x: F.avg_pool2d(x, 3, stride=2, padding=1), image)
    case("avg_pool2d_exclude_padding",
         lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False), image)
    case("avg_pool2d_ceil", lambda x: F.avg_pool2d(x, 2, stride=2, ceil_mode=True), image)
    case("adaptive_avg_pool2d_1", lambda x: F.adaptive_avg_pool2d(x, 1), image)
    case("adaptive_avg_pool2d_3x4", lambda x: F.adaptive_avg_pool2d(x, (3, 4)), image)
    case("adaptive_max_pool2d_3x4", lambda x: F.adaptive_max_pool2d(x, (3, 4)), image)

    for dim in (0, 1, 2):
        case(f"softmax_{dim}", lambda x: F.softmax(x, dim), rand(3, 4, 5, lo=-4, hi=4))
        case(f"log_softmax_{dim}", lambda x: F.log_softmax(x, dim), rand(3, 4, 5, lo=-4, hi=4))
    case("logsumexp", lambda x: torch.logsumexp(x, 1), rand(3, 4, lo=-4, hi=4))

    target = torch.tensor([2, 0, 4, 1, 2, 3])
    ignored = torch.tensor([2, -100, 4, 1, -100, 3])
    weight = rand(5, lo=0.2, hi=2)
    layers["weight"] = weight
    for reduction in ("mean", "sum", "none"):
        case(f"cross_entropy_{reduction}", lambda x, t: F.cross_entropy(x, t, reduction=reduction), rand(6, 5), target)
    case("cross_entropy_weight", lambda x, t: F.cross_entropy(x, t, weight), rand(6, 5), target)
    case("cross_entropy_smoothing", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), rand(6, 5), target)
    case("cross_entropy_weight_smoothing",
         lambda x, t: F.cross_entropy(x, t, weight, label_smoothing=0.2), rand(6, 5), target)
    case("cross_entropy_ignore", lambda x, t: F.cross_entropy(x, t), rand(6, 5), ignored)
    case("cross_entropy_ignore_all_options",
         lambda x, t: F.cross_entropy(x, t, weight, label_smoothing=0.1), rand(6, 5), ignored)
    case("cross_entropy_image", lambda x, t: F.cross_entropy(x, t), rand(2, 5, 3, 4), ints(2, 3, 4, below=5))
    chance = F.softmax(rand(6, 5), 1)
    case("cross_entropy_probabilities", lambda x: F.cross_entropy(x, chance), rand(6, 5))
    layers["cross_entropy_probabilities/x1"] = chance
    case("cross_entropy_probabilities_options",
         lambda x: F.cross_entropy(x, chance, weight, label_smoothing=0.1), rand(6, 5))
    layers["cross_entropy_probabilities_options/x1"] = chance
    for reduction in ("mean", "sum", "none"):
        case(f"nll_loss_{reduction}",
             lambda x, t: F.nll_loss(x, t, weight, reduction=reduction), rand(6, 5), ignored)
        case(f"mse_loss_{reduction}", lambda x, t: F.mse_loss(x, t, reduction=reduction), rand(4, 3), rand(4, 3))
    for name, f in {
        "relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "softplus": F.softplus,
        "elu": F.elu, "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "exp": torch.exp, "expm1": torch.expm1,
        "erf": torch.erf, "sin": torch.sin, "cos": torch.cos, "abs": torch.abs,
    }.items():
        case(name, f, rand(4, 5, lo=-5, hi=5))
    for name, f in {"log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log1p": torch.log1p}.items():
        case(name, f, rand(4, 5, lo=0.2, hi=5))
    case("var", lambda x: torch.var(x, 1), rand(3, 5))
    case("var_biased", lambda x: torch.var(x, (0, 2), unbiased=False), rand(3, 5, 2))
    case("std", lambda x: torch.std(x, 1), rand(3, 5))
    case("norm", lambda x: torch.norm(x, dim=1), rand(3, 5))
    case("prod", lambda x: torch.prod(x, 1), rand(3, 5))
    case("cumsum", lambda x: torch.cumsum(x, 1), rand(3, 5))
    case("embedding", lambda w, i: F.embedding(i, w), rand(6, 3), torch.tensor([[1, 5], [1, 0]]))
    save("layers.safetensors", layers)


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
    make_layers()
    make_mnist()
    make_power_sgd()
