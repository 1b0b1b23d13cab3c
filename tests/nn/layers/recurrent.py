#!/usr/bin/env python3
"""Recurrent layers: python3 tests/nn/layers/recurrent.py. What the file holds: golden.py."""
import torch
from torch import nn

from golden import Family

f = Family("recurrent")


def flat(layer, *xs):
    y, state = layer(*xs)
    return [y, *state] if isinstance(state, tuple) else [y, state]


def with_cells(layer, x, h, c):
    return flat(layer, x, (h, c))


f.case("RNN", lambda: nn.RNN(3, 4), f.rand(5, 2, 3), call=flat)
f.case("RNN/relu", lambda: nn.RNN(3, 4, 2, nonlinearity="relu", bidirectional=True), f.rand(4, 2, 3), f.rand(4, 2, 4), call=flat)
f.case("LSTM", lambda: nn.LSTM(3, 4), f.rand(5, 2, 3), call=flat)
f.case("LSTM/state", lambda: nn.LSTM(3, 4), f.rand(5, 2, 3), f.rand(1, 2, 4), f.rand(1, 2, 4), call=with_cells)
f.case("LSTM/deep", lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True), f.rand(2, 4, 3), call=flat)
f.case("LSTM/proj", lambda: nn.LSTM(3, 4, num_layers=2, proj_size=2, bias=False), f.rand(4, 2, 3), f.rand(2, 2, 2),
       f.rand(2, 2, 4), call=with_cells)
f.case("LSTM/unbatched", lambda: nn.LSTM(3, 4), f.rand(4, 3), f.rand(1, 4), f.rand(1, 4), call=with_cells)
f.case("LSTM/one", lambda: nn.LSTM(1, 1), f.rand(1, 1, 1), call=flat)
f.case("GRU", lambda: nn.GRU(3, 4), f.rand(5, 2, 3), f.rand(1, 2, 4), call=flat)
f.case("GRU/deep", lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True), f.rand(2, 4, 3), call=flat)
f.case("GRU/plain", lambda: nn.GRU(3, 4, bias=False), f.rand(4, 3), call=flat)
f.case("RNNCell", lambda: nn.RNNCell(3, 4), f.rand(2, 3), f.rand(2, 4))
f.case("RNNCell/relu", lambda: nn.RNNCell(3, 4, nonlinearity="relu"), f.rand(3), f.rand(4))
f.case("LSTMCell", lambda: nn.LSTMCell(3, 4), f.rand(2, 3), f.rand(2, 4), f.rand(2, 4),
       call=lambda cell, x, h, c: cell(x, (h, c)))
f.case("LSTMCell/plain", lambda: nn.LSTMCell(3, 4, bias=False), f.rand(2, 3))
f.case("GRUCell", lambda: nn.GRUCell(3, 4), f.rand(2, 3), f.rand(2, 4))
f.case("GRUCell/unbatched", lambda: nn.GRUCell(3, 4, bias=False), f.rand(3), f.rand(4))
f.save()
