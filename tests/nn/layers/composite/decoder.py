#!/usr/bin/env python3
"""Transformer decoders: python3 tests/nn/layers/composite/decoder.py. What the file holds: ../golden.py."""
import os
import sys

import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from golden import Family

f = Family("decoder", HERE)
E, H, T, S, N = 4, 2, 3, 4, 2
later = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
far = torch.triu(torch.ones(T, S, dtype=torch.bool), 2)
padding = torch.tensor([[False, False, False, True], [False, True, False, False]])
tgt_padding = torch.tensor([[False, False, True], [False, False, False]])


def layer(**options):
    return nn.TransformerDecoderLayer(E, H, dim_feedforward=5, dropout=0, **options)


f.case("TransformerDecoderLayer", layer, f.rand(T, N, E), f.rand(S, N, E))
f.case("TransformerDecoderLayer/gelu", lambda: layer(activation="gelu", norm_first=True, batch_first=True, bias=False),
       f.rand(N, T, E), f.rand(N, S, E), modes=("train",))
f.case("TransformerDecoderLayer/masks", lambda: layer(batch_first=True), f.rand(N, T, E), f.rand(N, S, E), modes=("train",),
       call=lambda m, x, memory: m(x, memory, later, far, tgt_padding, padding))
f.case("TransformerDecoderLayer/causal", layer, f.rand(T, E), f.rand(S, E), modes=("train",),
       call=lambda m, x, memory: m(x, memory, later, tgt_is_causal=True))
f.case("TransformerDecoderLayer/default", lambda: nn.TransformerDecoderLayer(E, H, 5), f.rand(T, N, E), f.rand(S, N, E), modes=("eval",))
f.case("TransformerDecoder", lambda: nn.TransformerDecoder(layer(), 2), f.rand(T, N, E), f.rand(S, N, E), modes=("train",))
f.case("TransformerDecoder/norm", lambda: nn.TransformerDecoder(layer(norm_first=True), 1, nn.LayerNorm(E)),
       f.rand(T, N, E), f.rand(S, N, E), modes=("train",))
f.case("Transformer", lambda: nn.Transformer(E, H, 1, 2, 5, 0.0), f.rand(S, N, E), f.rand(T, N, E), modes=("train",))
f.case("Transformer/masks", lambda: nn.Transformer(E, H, 1, 1, 5, 0.0, "gelu", batch_first=True, norm_first=True),
       f.rand(N, S, E), f.rand(N, T, E), modes=("train",),
       call=lambda m, src, tgt: m(src, tgt, tgt_mask=nn.Transformer.generate_square_subsequent_mask(T).to(src.dtype),
                                  src_key_padding_mask=padding, memory_mask=far, memory_key_padding_mask=padding))
f.save()
