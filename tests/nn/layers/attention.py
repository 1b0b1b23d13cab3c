#!/usr/bin/env python3
"""Attention layers: python3 tests/nn/layers/attention.py. What the file holds: golden.py."""
import torch
from torch import nn

from golden import Family

f = Family("attention")
E, H = 6, 2


def attend(**options):
    return lambda layer, *xs: [y for y in layer(*(xs if len(xs) == 3 else xs * 3), **options) if y is not None]


def mha(**options):
    return lambda: nn.MultiheadAttention(E, H, **options)


causal = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
padding = torch.tensor([[False, False, True, False], [False, True, False, False], [False, False, False, True]])
f.case("MultiheadAttention", mha(), f.rand(4, 3, E), f.rand(5, 3, E), f.rand(5, 3, E), call=attend())
f.case("MultiheadAttention/self", mha(batch_first=True), f.rand(3, 4, E), call=attend())
f.case("MultiheadAttention/heads", mha(bias=False), f.rand(4, 3, E), call=attend(average_attn_weights=False))
f.case("MultiheadAttention/no_weights", mha(), f.rand(4, 3, E), call=attend(need_weights=False))
f.case("MultiheadAttention/sizes", mha(kdim=4, vdim=5), f.rand(4, 3, E), f.rand(5, 3, 4), f.rand(5, 3, 5), call=attend())
f.case("MultiheadAttention/extra", mha(add_bias_kv=True, add_zero_attn=True), f.rand(4, 3, E), call=attend(attn_mask=causal))
f.case("MultiheadAttention/masks", mha(batch_first=True), f.rand(3, 4, E),
       call=attend(attn_mask=causal, key_padding_mask=padding))
f.case("MultiheadAttention/float_mask", mha(), f.rand(4, 3, E), f.rand(4, 4),
       call=lambda layer, x, m: list(layer(x, x, x, attn_mask=m)))
f.case("MultiheadAttention/mask_per_head", mha(), f.rand(4, 3, E), f.rand(3 * H, 4, 4),
       call=lambda layer, x, m: list(layer(x, x, x, attn_mask=m)))
f.case("MultiheadAttention/unbatched", mha(), f.rand(4, E), call=attend())
f.save()
