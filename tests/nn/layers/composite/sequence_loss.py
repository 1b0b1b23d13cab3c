#!/usr/bin/env python3
"""Losses of sequences and of several labels: python3 tests/nn/layers/composite/sequence_loss.py. What the file holds: ../golden.py."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from golden import Family

f = Family("sequence_loss", HERE)
REDUCTIONS = ("mean", "sum", "none")


def case(name, loss, *inputs):
    """loss(reduction, *inputs) with every reduction: three results of one case."""
    f.case(name, nn.Identity, *inputs, modes=("train",), call=lambda _, *xs: [loss(r, *xs) for r in REDUCTIONS])


def ctc(lengths, target_lengths, **options):
    lengths, target_lengths = torch.tensor(lengths), torch.tensor(target_lengths)
    return lambda r, x, t: nn.CTCLoss(reduction=r, **options)(F.log_softmax(x, -1), t, lengths, target_lengths)


padded = torch.tensor([[1, 2, 2], [3, 3, -1], [4, -7, 99], [0, 0, 0]])
case("CTCLoss", ctc([7, 6, 3, 0], [3, 2, 1, 0]), f.rand(7, 4, 5), padded)
case("CTCLoss/blank", ctc([7, 5], [2, 0], blank=2), f.rand(7, 2, 4), torch.tensor([[1, 3], [0, 0]]))
case("CTCLoss/concatenated", ctc([6, 2, 6], [3, 0, 2]), f.rand(6, 3, 4), torch.tensor([1, 2, 1, 3, 3]))
case("CTCLoss/one", ctc(6, 2), f.rand(6, 4), torch.tensor([1, 2]))
# The second sample's target does not fit into its input.
case("CTCLoss/infinite", ctc([6, 2], [2, 2]), f.rand(6, 2, 4), torch.tensor([[1, 2], [3, 3]]))
case("CTCLoss/zero_infinity", ctc([6, 2], [2, 2], zero_infinity=True), f.rand(6, 2, 4), torch.tensor([[1, 2], [3, 3]]))
# The gradient with respect to numbers that are no log_softmax.
case("CTCLoss/scores", lambda r, x, t: F.ctc_loss(x, t, torch.tensor([5, 4]), torch.tensor([2, 1]), reduction=r),
     f.rand(5, 2, 3, lo=-2, hi=0), torch.tensor([[1, 2], [2, 0]]))
labels = torch.tensor([[2, 0, -1, 1], [3, 1, 0, 2], [-1, 3, 2, 1]])
case("MultiLabelMarginLoss", lambda r, x, t: nn.MultiLabelMarginLoss(reduction=r)(x, t), f.rand(3, 4), labels)
case("MultiLabelMarginLoss/one", lambda r, x, t: nn.MultiLabelMarginLoss(reduction=r)(x, t), f.rand(5), torch.tensor([4, 1, -1, 3, 0]))
f.save()
