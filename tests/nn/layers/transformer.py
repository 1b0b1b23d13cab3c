#!/usr/bin/env python3
"""Transformer layers: python3 tests/nn/layers/transformer.py. What the file holds: golden.py."""
import torch
from torch import nn

from golden import Family

f = Family("transformer")
E, H = 6, 2
causal = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
padding = torch.tensor([[False, False, True, False], [False, True, False, False], [False, False, False, True]])


def encoder_layer(**options):
    return lambda: nn.TransformerEncoderLayer(E, H, dim_feedforward=5, dropout=0, **options)


f.case("TransformerEncoderLayer", encoder_layer(), f.rand(4, 3, E))
f.case("TransformerEncoderLayer/gelu", encoder_layer(activation="gelu", norm_first=True, batch_first=True), f.rand(3, 4, E))
f.case("TransformerEncoderLayer/masks", encoder_layer(batch_first=True), f.rand(3, 4, E), modes=("train",),
       call=lambda layer, x: layer(x, causal, padding))
f.case("TransformerEncoderLayer/default", lambda: nn.TransformerEncoderLayer(E, H, dim_feedforward=5), f.rand(4, 3, E), modes=("eval",))
f.case("TransformerEncoder", lambda: nn.TransformerEncoder(encoder_layer()(), 2), f.rand(4, 3, E))
f.case("TransformerEncoder/norm", lambda: nn.TransformerEncoder(encoder_layer(norm_first=True)(), 2, nn.LayerNorm(E)), f.rand(4, 3, E))
f.save()
