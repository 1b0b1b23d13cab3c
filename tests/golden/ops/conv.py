#!/usr/bin/env python3
"""Convolutions against PyTorch: python3 tests/golden/ops/conv.py. What the file holds: golden.py."""
import torch
import torch.nn.functional as F

from golden import Family

f = Family("conv")
c1, c2, c3 = F.conv1d, F.conv2d, F.conv3d
t1, t2, t3 = F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d


def case(name, op, x, w, bias=None, **options):
    """bias: how many; None: no bias."""
    xs = [f.rand(*x), f.rand(*w)] + ([f.rand(bias)] if bias is not None else [])
    f.case(name, lambda *v: op(*v, **options), *xs)


case("conv2d/plain", c2, (2, 3, 5, 4), (4, 3, 3, 3), 4)
case("conv2d/no_bias", c2, (2, 3, 5, 4), (4, 3, 3, 3))
case("conv2d/stride_padding", c2, (2, 3, 7, 6), (4, 3, 3, 2), 4, stride=(2, 1), padding=(1, 2))
case("conv2d/dilation", c2, (1, 2, 7, 8), (3, 2, 3, 2), 3, padding=2, dilation=(2, 3))
case("conv2d/groups", c2, (2, 6, 4, 5), (4, 3, 3, 3), 4, padding=1, groups=2)
case("conv2d/depthwise", c2, (1, 4, 6, 5), (8, 1, 3, 3), 8, stride=2, padding=1, groups=4)
case("conv2d/1x1", c2, (2, 5, 3, 2), (3, 5, 1, 1), 3)
case("conv2d/one_of_all", c2, (1, 1, 1, 1), (1, 1, 1, 1), 1)
case("conv2d/empty", c2, (0, 2, 4, 4), (3, 2, 3, 3), 3)
case("conv2d/without_batch", c2, (2, 4, 5), (3, 2, 3, 2), 3)
case("conv2d/same", c2, (1, 2, 5, 6), (3, 2, 4, 3), 3, padding="same", dilation=(1, 2))
case("conv2d/sixteen", c2, (1, 9, 5, 6), (16, 9, 3, 3), 16, padding=1)
case("conv1d/plain", c1, (2, 3, 7), (4, 3, 3), 4)
case("conv1d/options", c1, (1, 4, 11), (6, 2, 3), 6, stride=2, padding=3, dilation=2, groups=2)
case("conv1d/same", c1, (2, 2, 6), (3, 2, 4), 3, padding="same")
case("conv1d/without_batch", c1, (2, 6), (3, 2, 3), 3)
case("conv1d/empty", c1, (0, 2, 6), (3, 2, 3), 3)
case("conv3d/plain", c3, (2, 3, 3, 4, 3), (4, 3, 2, 3, 2), 4)
case("conv3d/options", c3, (1, 4, 5, 6, 4), (2, 2, 2, 3, 2), 2, stride=(2, 1, 2), padding=(0, 1, 2), dilation=(1, 2, 1), groups=2)
case("conv3d/same", c3, (1, 2, 3, 4, 3), (2, 2, 2, 3, 1), 2, padding="same")
case("conv3d/without_batch", c3, (2, 3, 4, 3), (3, 2, 2, 2, 3), 3)
case("conv_transpose1d/plain", t1, (2, 3, 4), (3, 2, 3), 2)
case("conv_transpose1d/options", t1, (1, 4, 5), (4, 3, 3), 6, stride=3, padding=2, output_padding=1, dilation=2, groups=2)
case("conv_transpose1d/without_batch", t1, (3, 4), (3, 2, 3), 2, stride=2)
case("conv_transpose2d/plain", t2, (2, 3, 3, 4), (3, 2, 3, 3), 2)
case("conv_transpose2d/no_bias", t2, (2, 3, 3, 4), (3, 2, 3, 3))
case("conv_transpose2d/dcgan", t2, (1, 5, 4, 4), (5, 3, 4, 4), 3, stride=2, padding=1)
case("conv_transpose2d/options", t2, (1, 4, 3, 2), (4, 3, 2, 3), 6, stride=(3, 2), padding=(1, 0), output_padding=(2, 1),
     dilation=(1, 2), groups=2)
case("conv_transpose2d/depthwise", t2, (1, 3, 4, 3), (3, 1, 3, 3), 3, stride=2, groups=3)
case("conv_transpose2d/whole_strides", t2, (1, 2, 3, 3), (2, 2, 2, 2), 2, stride=(1, 2), padding=1, output_padding=(1, 3),
     dilation=(2, 4))
case("conv_transpose2d/one_of_all", t2, (1, 1, 1, 1), (1, 1, 1, 1), 1)
case("conv_transpose2d/empty", t2, (0, 2, 3, 3), (2, 1, 2, 2), 1)
case("conv_transpose2d/without_batch", t2, (2, 3, 3), (2, 3, 2, 2), 3, stride=2)
case("conv_transpose3d/plain", t3, (1, 2, 3, 2, 3), (2, 3, 2, 3, 2), 3)
case("conv_transpose3d/options", t3, (1, 4, 2, 3, 2), (4, 2, 2, 2, 3), 4, stride=(2, 1, 3), padding=(1, 0, 1),
     output_padding=(1, 0, 2), groups=2)


def gradients(op, stride, padding, dilation, groups):
    def run(dy, x, w):
        y = op(x, w, None, stride, padding, dilation, groups)
        return torch.autograd.grad(y, (x, w), dy, create_graph=True)
    return run


# Both gradients as results; their own gradients are of second order.
f.case("conv2d_gradients/plain", gradients(c2, 1, 0, 1, 1), f.rand(2, 4, 3, 2), f.rand(2, 3, 5, 4), f.rand(4, 3, 3, 3))
f.case("conv2d_gradients/options", gradients(c2, 2, 1, 2, 2), f.rand(1, 4, 2, 3), f.rand(1, 6, 6, 7), f.rand(4, 3, 3, 3))
f.case("conv3d_gradients/plain", gradients(c3, 1, 0, 1, 1), f.rand(1, 2, 2, 2, 2), f.rand(1, 3, 3, 4, 3), f.rand(2, 3, 2, 3, 2))
f.case("conv3d_gradients/options", gradients(c3, 2, 1, 1, 2), f.rand(1, 4, 2, 3, 3), f.rand(1, 4, 3, 4, 5), f.rand(4, 2, 3, 2, 3))
f.save()
