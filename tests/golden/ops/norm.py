#!/usr/bin/env python3
"""Normalization against PyTorch: python3 tests/golden/ops/norm.py. What the file holds: golden.py."""
import torch
import torch.nn.functional as F

from golden import Family

f = Family("norm")

for name, shape in {"2d": (5, 3), "3d": (4, 3, 5), "4d": (2, 3, 4, 3), "5d": (2, 3, 2, 3, 2), "one_position": (4, 3, 1, 1)}.items():
    c = shape[1]
    f.case(f"batch_norm/train_{name}", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
           f.rand(*shape), f.rand(c), f.rand(c))
    f.case(f"batch_norm/eval_{name}", lambda x, w, b, m, v: F.batch_norm(x, m.detach(), v.detach().abs() + 0.5, w, b, eps=0.01),
           f.rand(*shape), f.rand(c), f.rand(c), f.rand(c), f.rand(c))
f.case("batch_norm/plain", lambda x: F.batch_norm(x, None, None, training=True), f.rand(4, 3, 5))
f.case("batch_norm/large_mean", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
       f.rand(4, 3, 5, 4, lo=99, hi=101), f.rand(3), f.rand(3))
f.case("batch_norm/large", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
       f.rand(2, 9, 5, 6), f.rand(9), f.rand(9))


def running(op, momentum):
    """x, mean and variance (as a square, plus one half) -> the result and the statistics after it."""
    def run(x, m, v):
        m, v = m.detach().clone(), v.detach() ** 2 + 0.5
        y = op(x, m, v, momentum)
        return y, m, v
    return run


for momentum in (0.1, 0.75, 0.0, 1.0):
    f.case(f"batch_norm/momentum_{momentum}", running(lambda x, m, v, a: F.batch_norm(x, m, v, training=True, momentum=a), momentum),
           f.rand(4, 3, 5, 2), f.rand(3), f.rand(3))
    f.case(f"instance_norm/momentum_{momentum}", running(lambda x, m, v, a: F.instance_norm(x, m, v, momentum=a), momentum),
           f.rand(4, 3, 5, 2), f.rand(3), f.rand(3))

for name, shape in {"1d": (3, 4, 5), "2d": (2, 3, 4, 3), "3d": (2, 3, 2, 3, 2)}.items():
    c = shape[1]
    f.case(f"instance_norm/{name}", lambda x, w, b: F.instance_norm(x, None, None, w, b), f.rand(*shape), f.rand(c), f.rand(c))
    f.case(f"instance_norm/eval_{name}",
           lambda x, w, b, m, v: F.instance_norm(x, m.detach(), v.detach().abs() + 0.5, w, b, use_input_stats=False, eps=0.01),
           f.rand(*shape), f.rand(c), f.rand(c), f.rand(c), f.rand(c))
# Two positions: their gradients cancel but for eps.
f.case("instance_norm/two_positions", lambda x, w, b: F.instance_norm(x, None, None, w, b, eps=0.1), f.rand(1, 1, 2), f.rand(1), f.rand(1))
f.case("instance_norm/plain", lambda x: F.instance_norm(x, eps=0.1), f.rand(3, 4, 5))
f.case("instance_norm/large_mean", lambda x: F.instance_norm(x), f.rand(2, 3, 5, 4, lo=99, hi=101))

for name, shape, groups in [("2d", (4, 6), 2), ("3d", (3, 6, 5), 3), ("4d", (2, 6, 4, 3), 2), ("5d", (2, 4, 2, 3, 2), 4),
                            ("one_group", (2, 4, 3, 3), 1), ("one_element", (2, 2, 1), 2), ("wide", (2, 32, 3, 3), 16),
                            ("empty", (0, 4, 3), 2)]:
    c = shape[1]
    f.case(f"group_norm/{name}", lambda x, w, b: F.group_norm(x, groups, w, b, eps=0.01), f.rand(*shape), f.rand(c), f.rand(c))
f.case("group_norm/plain", lambda x: F.group_norm(x, 2), f.rand(3, 4, 5))
f.case("group_norm/large_mean", lambda x: F.group_norm(x, 3), f.rand(2, 6, 5, 4, lo=99, hi=101))

for name, shape, last in [("rows", (5, 7), (7,)), ("tokens", (2, 5, 32), (32,)), ("two_dims", (3, 4, 5), (4, 5)),
                          ("images", (2, 3, 4, 5), (3, 4, 5)), ("whole", (6,), (6,)), ("one_element", (1, 1), (1,)),
                          ("long", (2, 150), (150,)), ("empty", (0, 4), (4,))]:
    f.case(f"layer_norm/{name}", lambda x, w, b: F.layer_norm(x, last, w, b, eps=0.01), f.rand(*shape), f.rand(*last), f.rand(*last))
f.case("layer_norm/plain", lambda x: F.layer_norm(x, (5,)), f.rand(3, 5))
f.case("layer_norm/weight_alone", lambda x, w: F.layer_norm(x, (5,), w), f.rand(3, 5), f.rand(5))
f.case("layer_norm/large_mean", lambda x: F.layer_norm(x, (60,)), f.rand(3, 60, lo=99, hi=101))


# This version of PyTorch has no rms_norm: its later definition, by ops.
def rms_norm(x, dims, weight=None, eps=None):
    y = x * torch.rsqrt((x * x).mean(dims, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps))
    return y if weight is None else y * weight


f.case("rms_norm/rows", lambda x, w: rms_norm(x, (-1,), w, 0.01), f.rand(5, 7), f.rand(7))
f.case("rms_norm/two_dims", lambda x, w: rms_norm(x, (-2, -1), w, 0.01), f.rand(3, 4, 5), f.rand(4, 5))
f.case("rms_norm/plain", lambda x: rms_norm(x, (-1,), None, 1e-6), f.rand(2, 150))

for size, options in {1: {}, 2: {"alpha": 0.5}, 3: {"alpha": 0.5, "beta": 0.5}, 5: {"alpha": 1.0, "beta": 0.75, "k": 2.0}, 9: {"alpha": 0.1}}.items():
    f.case(f"local_response_norm/{size}", lambda x: F.local_response_norm(x, size, **options), f.rand(2, 6, 3, 4))
f.case("local_response_norm/3d", lambda x: F.local_response_norm(x, 3, alpha=0.5), f.rand(2, 6, 3))
f.case("local_response_norm/5d", lambda x: F.local_response_norm(x, 2, alpha=0.5), f.rand(2, 4, 2, 3, 2))
f.save()
