#!/usr/bin/env python3
"""Which layers take batches of one row and of none, by PyTorch: python3 tests/golden/layers/few_rows.py.
few_rows.txt has a line for each that PyTorch refuses: the layer, train or eval, the number of rows."""
import os
import torch
from torch import nn

C1, C2, C3, FLAT, CODES = (4, 8), (4, 6, 6), (4, 4, 4, 4), (8,), (3,)
CONV1, CONV2, CONV3 = [dict(in_channels=4, out_channels=6, kernel_size=3)] * 3
WINDOW = dict(kernel_size=2)
SEQUENCE = (5, None, 6)  # None: where the rows go

LAYERS = {name: (lambda kind=getattr(nn, name): kind(), FLAT) for name in
          """ReLU ReLU6 Sigmoid LogSigmoid Tanh Tanhshrink Softsign SiLU Mish SELU Hardsigmoid Hardswish LeakyReLU PReLU
          RReLU ELU CELU GELU Softplus Hardtanh Hardshrink Softshrink GLU Identity Dropout AlphaDropout Flatten""".split()}
LAYERS |= {
    "Threshold": (lambda: nn.Threshold(0.1, 0.5), FLAT),
    "Softmax": (lambda: nn.Softmax(1), FLAT), "Softmin": (lambda: nn.Softmin(1), FLAT),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), FLAT), "Softmax2d": (nn.Softmax2d, C2),
    "Dropout1d": (nn.Dropout1d, C1), "Dropout2d": (nn.Dropout2d, C2), "Dropout3d": (nn.Dropout3d, C3),
    "FeatureAlphaDropout": (nn.FeatureAlphaDropout, C2),
    "Linear": (lambda: nn.Linear(8, 5), FLAT), "Bilinear": (lambda: nn.Bilinear(8, 8, 3), FLAT),
    "Embedding": (lambda: nn.Embedding(10, 4), CODES),
    "Unflatten": (lambda: nn.Unflatten(1, (2, 4)), FLAT), "ChannelShuffle": (lambda: nn.ChannelShuffle(2), C2),
    "Conv1d": (lambda: nn.Conv1d(**CONV1), C1), "Conv2d": (lambda: nn.Conv2d(**CONV2), C2),
    "Conv3d": (lambda: nn.Conv3d(**CONV3), C3),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(**CONV1), C1),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(**CONV2), C2),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(**CONV3), C3),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(8), FLAT), "BatchNorm1d/lines": (lambda: nn.BatchNorm1d(4), C1),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), C2), "BatchNorm3d": (lambda: nn.BatchNorm3d(4), C3),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True), C1),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), C2),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(4, affine=True, track_running_stats=True), C3),
    "InstanceNorm2d/plain": (lambda: nn.InstanceNorm2d(4), C2),
    "LayerNorm": (lambda: nn.LayerNorm(8), FLAT), "RMSNorm": (lambda: nn.RMSNorm(8), FLAT),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), C2), "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), C2),
    "MaxPool1d": (lambda: nn.MaxPool1d(**WINDOW), C1), "MaxPool2d": (lambda: nn.MaxPool2d(**WINDOW), C2),
    "MaxPool3d": (lambda: nn.MaxPool3d(**WINDOW), C3),
    "AvgPool1d": (lambda: nn.AvgPool1d(**WINDOW), C1), "AvgPool2d": (lambda: nn.AvgPool2d(**WINDOW), C2),
    "AvgPool3d": (lambda: nn.AvgPool3d(**WINDOW), C3),
    "LPPool1d": (lambda: nn.LPPool1d(2, **WINDOW), C1), "LPPool2d": (lambda: nn.LPPool2d(2, **WINDOW), C2),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), C2),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), C2), "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), C2),
    "Unfold": (lambda: nn.Unfold(2), C2), "Fold": (lambda: nn.Fold(4, 2, stride=2), (8, 4)),
    "RNN": (lambda: nn.RNN(6, 4), SEQUENCE), "LSTM": (lambda: nn.LSTM(6, 4, 2, bidirectional=True), SEQUENCE),
    "GRU": (lambda: nn.GRU(6, 4), SEQUENCE),
    "RNNCell": (lambda: nn.RNNCell(8, 4), FLAT), "LSTMCell": (lambda: nn.LSTMCell(8, 4), FLAT),
    "GRUCell": (lambda: nn.GRUCell(8, 4), FLAT),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(6, 2), SEQUENCE),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0), SEQUENCE),
    "TransformerEncoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0), 2), SEQUENCE),
    "Sequential": (lambda: nn.Sequential(nn.Linear(8, 5), nn.ReLU()), FLAT),
    "spectral_norm": (lambda: nn.utils.spectral_norm(nn.Linear(8, 5)), FLAT),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)), FLAT),
}
for n, (shape, size) in enumerate([(C1, 3), (C2, (3, 2)), (C3, (2, 1, 3))], 1):
    for kind in ("AdaptiveAvgPool", "AdaptiveMaxPool"):
        LAYERS[f"{kind}{n}d"] = (lambda kind=getattr(nn, f"{kind}{n}d"), size=size: kind(size), shape)
    for kind in ("ReflectionPad", "ReplicationPad", "ZeroPad"):
        LAYERS[f"{kind}{n}d"] = (lambda kind=getattr(nn, f"{kind}{n}d"): kind(1), shape)
    LAYERS[f"ConstantPad{n}d"] = (lambda kind=getattr(nn, f"ConstantPad{n}d"): kind(1, 2.0), shape)


def call(layer, x):
    if isinstance(layer, nn.MultiheadAttention):
        return layer(x, x, x)[0]
    y = layer(x, x) if isinstance(layer, nn.Bilinear) else layer(x)
    while isinstance(y, tuple):
        y = y[0]
    return y


def refused(make, shape, training, rows):
    layer = make().train(training)
    shape = tuple(rows if n is None else n for n in shape) if None in shape else (rows, *shape)
    x = torch.zeros(shape, dtype=torch.long) if isinstance(layer, nn.Embedding) else torch.randn(shape, requires_grad=True)
    try:
        call(layer, x).sum().backward() if any(p.requires_grad for p in layer.parameters()) or x.requires_grad else call(layer, x)
    except Exception as e:
        return str(e).splitlines()[0]
    return None


torch.manual_seed(0)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "few_rows.txt"), "w") as file:
    print(f"# What PyTorch {torch.__version__} refuses, by few_rows.py: layer, mode, rows", file=file)
    for name in sorted(LAYERS):
        for mode in ("train", "eval"):
            for rows in (1, 0):
                if text := refused(*LAYERS[name], mode == "train", rows):
                    print(name, mode, rows, file=file)
                    print(name, mode, rows, text)
