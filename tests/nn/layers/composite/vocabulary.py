#!/usr/bin/env python3
"""EmbeddingBag and AdaptiveLogSoftmaxWithLoss: python3 tests/nn/layers/composite/vocabulary.py. What the file holds: ../golden.py."""
import os
import sys

import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from golden import Family

f = Family("vocabulary", HERE)
V, E = 7, 3
rows = torch.tensor([[1, 4, 4], [0, 6, 2], [4, 4, 4], [5, 0, 4]])
flat = torch.tensor([3, 1, 4, 4, 0, 6, 2, 4])
offsets = torch.tensor([0, 3, 3, 4, 8])  # two bags are empty
ends = torch.tensor([0, 3, 3, 8])

for mode in ("sum", "mean", "max"):
    name = "EmbeddingBag/" + mode
    f.case(name, lambda: nn.EmbeddingBag(V, E, mode=mode), rows, modes=("train",))
    f.case(name + "_padding", lambda: nn.EmbeddingBag(V, E, mode=mode, padding_idx=-3), rows, modes=("train",))
    f.case(name + "_offsets", lambda: nn.EmbeddingBag(V, E, mode=mode), flat, offsets, modes=("train",))
    f.case(name + "_ends", lambda: nn.EmbeddingBag(V, E, mode=mode, include_last_offset=True, padding_idx=0), flat, ends, modes=("train",))
f.case("EmbeddingBag/weights", lambda: nn.EmbeddingBag(V, E, mode="sum"), flat, offsets, f.rand(8), modes=("train",))
f.case("EmbeddingBag/weights_rows", lambda: nn.EmbeddingBag(V, E, mode="sum", padding_idx=4), rows, f.rand(4, 3), modes=("train",),
       call=lambda m, x, w: m(x, per_sample_weights=w))
f.case("EmbeddingBag/by_freq", lambda: nn.EmbeddingBag(V, E, mode="sum", scale_grad_by_freq=True), rows, modes=("train",))
f.case("EmbeddingBag/norm", lambda: nn.EmbeddingBag(V, E, max_norm=0.5, norm_type=1.0), rows, modes=("eval",))


def softmax(**options):
    return lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 9, [3, 5], **options)


targets = torch.tensor([0, 8, 2, 3, 4, 5, 7])
f.case("AdaptiveLogSoftmaxWithLoss", softmax(div_value=2.0), f.rand(7, 8), targets, modes=("train",))
f.case("AdaptiveLogSoftmaxWithLoss/bias", softmax(head_bias=True, div_value=1.5), f.rand(2, 8), torch.tensor([1, 4]), modes=("train",))
f.case("AdaptiveLogSoftmaxWithLoss/one", softmax(div_value=2.0), f.rand(8), torch.tensor(6), modes=("train",))
f.case("AdaptiveLogSoftmaxWithLoss/log_prob", softmax(div_value=2.0), f.rand(4, 8), modes=("train",), call=lambda m, x: m.log_prob(x))
f.case("AdaptiveLogSoftmaxWithLoss/predict", softmax(div_value=2.0), f.rand(6, 8), modes=("train",), call=lambda m, x: m.predict(x))
f.save()
