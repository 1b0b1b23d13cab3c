#!/usr/bin/env python3
"""Packed sequences: python3 tests/nn/layers/composite/packed.py. What the file holds: ../golden.py."""
import os
import sys

import torch
from torch import nn
from torch.nn.utils import rnn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from golden import Family

f = Family("packed", HERE)
T, N, I, H = 5, 4, 3, 2
lengths, ordered = torch.tensor([2, 5, 1, 5]), torch.tensor([5, 4, 4, 1])


def run(m, x, *state, lengths=lengths, **options):
    """Padded results and the final states."""
    packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=lengths is ordered, **options)
    y, end = m(packed, *((state,) if len(state) > 1 else state))
    padded, _ = rnn.pad_packed_sequence(y, **options)
    return [padded, *(end if isinstance(end, tuple) else (end,))]


f.case("RNN/packed", lambda: nn.RNN(I, H), f.rand(T, N, I), modes=("train",), call=run)
f.case("RNN/ordered", lambda: nn.RNN(I, H, nonlinearity="relu", bidirectional=True), f.rand(T, N, I), f.rand(2, N, H), modes=("train",),
       call=lambda m, *a: run(m, *a, lengths=ordered))
f.case("LSTM/packed", lambda: nn.LSTM(I, H, 2, bidirectional=True), f.rand(T, N, I), f.rand(4, N, H), f.rand(4, N, H), modes=("train",), call=run)
f.case("LSTM/projected", lambda: nn.LSTM(I, 3, proj_size=2, batch_first=True, bias=False), f.rand(N, T, I), modes=("train",),
       call=lambda m, x: run(m, x, batch_first=True))
f.case("GRU/packed", lambda: nn.GRU(I, H, 2, bidirectional=True), f.rand(T, N, I), f.rand(4, N, H), modes=("train",), call=run)
f.case("GRU/ordered", lambda: nn.GRU(I, H), f.rand(T, N, I), modes=("train",), call=lambda m, *a: run(m, *a, lengths=ordered))

# The functions.
once = dict(modes=("train",))
f.case("Identity/pack", nn.Identity, f.rand(T, N, 2, 1), call=lambda _, x: rnn.pack_padded_sequence(x, ordered).data, **once)
f.case("Identity/pack_unordered", nn.Identity, f.rand(N, T, 2), **once,
       call=lambda _, x: rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False).data)
f.case("Identity/pad", nn.Identity, f.rand(T, N, 2), **once,
       call=lambda _, x: rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False), True, -1.5, 7)[0])
f.case("Identity/pad_sequence", nn.Identity, f.rand(2, 3), f.rand(4, 3), f.rand(1, 3), **once,
       call=lambda _, *xs: [rnn.pad_sequence(xs), rnn.pad_sequence(xs, True, 0.5), rnn.pad_sequence(xs, padding_side="left")])
f.case("Identity/pack_sequence", nn.Identity, f.rand(2), f.rand(4), f.rand(3), **once,
       call=lambda _, *xs: rnn.pack_sequence(xs, enforce_sorted=False).data)
f.case("Identity/unpack_sequence", nn.Identity, f.rand(T, N, 2), **once,
       call=lambda _, x: rnn.unpack_sequence(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)))
f.save()
