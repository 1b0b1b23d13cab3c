#!/usr/bin/env python3
"""Makes amp.safetensors: training steps of a small convolutional network under torch.autocast("cpu", torch.bfloat16):

    python3 tests/golden/amp.py          # needs python3-torch; the tests themselves do not

low/..., wide/...: logits, losses, gradients of the first step and parameters after the last, under autocast and without.
dtype/...: of a value on its way, as its number of bytes.
"""
import torch
import torch.nn.functional as F

from make_golden import formula, save

# name, shape, scale of the formula, what is added
PARAMS = [
    ("conv1.weight", (8, 3, 3, 3), 0.25, 0),
    ("bn1.weight", (8,), 0.25, 1),
    ("bn1.bias", (8,), 0.25, 0),
    ("conv2.weight", (16, 8, 3, 3), 0.125, 0),
    ("bn2.weight", (16,), 0.25, 1),
    ("bn2.bias", (16,), 0.25, 0),
    ("fc.weight", (10, 16), 0.25, 0),
    ("fc.bias", (10,), 0.25, 0),
]
STEPS, RATE = 3, 0.125


def forward(p, stats, x, dtypes):
    def bn(h, i):
        return F.batch_norm(h, *stats[i], p[f"bn{i}.weight"], p[f"bn{i}.bias"], training=True)

    c = F.conv2d(x, p["conv1.weight"], padding=1)
    h = F.relu(bn(c, 1))
    h = F.relu(bn(F.conv2d(h, p["conv2.weight"], padding=1, stride=2), 2))
    h = F.adaptive_avg_pool2d(h, 1).flatten(1)
    y = F.linear(h, p["fc.weight"], p["fc.bias"])
    for name, t in (("conv", c), ("pooled", h), ("logits", y)):
        dtypes[name] = torch.tensor([t.element_size()])
    return y


out = {}
x = formula((4, 3, 16, 16), 100).float()
target = torch.tensor([3, 0, 7, 3])
for mode in ("low", "wide"):
    p = {n: (formula(s, k + 1, scale) + add).float().requires_grad_() for k, (n, s, scale, add) in enumerate(PARAMS)}
    stats = {1: (torch.zeros(8), torch.ones(8)), 2: (torch.zeros(16), torch.ones(16))}
    losses = []
    for step in range(STEPS):
        dtypes = {}
        with torch.autocast("cpu", torch.bfloat16, enabled=mode == "low"):
            y = forward(p, stats, x, dtypes)
        # PyTorch's CPU list, unlike CUDA's, leaves cross_entropy in bf16; f32 is what both documents intend.
        loss = F.cross_entropy(y.float(), target)
        dtypes["loss"] = torch.tensor([loss.element_size()])
        losses.append(loss.item())
        for q in p.values():
            q.grad = None
        loss.backward()
        if step == 0:
            out[f"{mode}/logits"] = y.double()
            for n, q in p.items():
                assert q.grad.dtype == torch.float32
                out[f"{mode}/grad/{n}"] = q.grad.double()
        with torch.no_grad():
            for q in p.values():
                q -= RATE * q.grad
    out[f"{mode}/losses"] = torch.tensor(losses, dtype=torch.float64)
    for n, q in p.items():
        out[f"{mode}/param/{n}"] = q.double()
    if mode == "low":
        for n, t in dtypes.items():
            out[f"dtype/{n}"] = t
out["target"] = target
save("amp.safetensors", out)
