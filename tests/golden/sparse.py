#!/usr/bin/env python3
"""Makes sparse.safetensors with PyTorch, in f64: an embedding with sparse gradients, stepped by optimizers.

    python3 tests/golden/sparse.py          # needs PyTorch; the test itself does not

<case>/p: the table after the steps in `steps`. Step t reads rows (k k + 3 t) mod ROWS, k = 0 ... 5, some twice, others not
at all; its loss is sum(sin(3 y + 0.1 t)). <case>/norm: norms of the gradients before clipping, step by step.

"adam" compares Adam with SparseAdam with an eps of almost nothing, because SparseAdam adds eps to another root than Adam. RMSprop, which
takes no sparse gradients in PyTorch, is dense RMSprop on copies of the rows alone.
"""
import torch

from make_golden import formula, save

torch.set_default_dtype(torch.float64)
ROWS, WIDTH, STEPS = 11, 3, [1, 5, 20]


def index(t):
    return torch.tensor([(k * k + 3 * t) % ROWS for k in range(6)])


class RowRMSprop:
    """RMSprop whose step sees the rows of the gradient and their state, and nothing else."""

    def __init__(self, params, **options):
        (self.table,), self.options = params, options
        self.state = {}

    def step(self):
        grad = self.table.grad.coalesce()
        for i, g in zip(grad.indices()[0].tolist(), grad.values()):
            if i not in self.state:
                row = self.table.detach()[i].clone()
                self.state[i] = row, torch.optim.RMSprop([row], **self.options)
            row, opt = self.state[i]
            row.grad = g.clone()
            opt.step()
            self.table.detach()[i] = row


def cases():
    O = torch.optim
    return {
        "sgd": (O.SGD, dict(lr=0.1), {}),
        "sgd_maximize": (O.SGD, dict(lr=0.01, maximize=True), {}),
        "sgd_momentum": (O.SGD, dict(lr=0.1, momentum=0.9), {}),
        "sgd_padding": (O.SGD, dict(lr=0.1), dict(padding_idx=4)),
        "sgd_clipped": (O.SGD, dict(lr=0.1), dict(clip=1.5)),
        "sgd_accumulated": (O.SGD, dict(lr=0.1), dict(batches=2)),
        "adagrad": (O.Adagrad, dict(lr=0.1, lr_decay=0.01, initial_accumulator_value=0.2), {}),
        "adagrad_padding": (O.Adagrad, dict(lr=0.1), dict(padding_idx=-2)),
        "adam": (O.SparseAdam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-30), {}),
        "adam_accumulated": (O.SparseAdam, dict(lr=0.02, eps=1e-30), dict(batches=2)),
        "sparse_adam": (O.SparseAdam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-3), {}),
        "sparse_adam_maximize": (O.SparseAdam, dict(lr=0.01, maximize=True), dict(batches=2)),
        "rmsprop": (RowRMSprop, dict(lr=0.01, alpha=0.9), {}),
        "rmsprop_both": (RowRMSprop, dict(lr=0.002, centered=True, momentum=0.8, eps=1e-3), {}),
    }


out = {"steps": torch.tensor(STEPS)}
for name, (cls, options, how) in cases().items():
    table = formula((ROWS, WIDTH), 3, 1.0).requires_grad_()
    opt = cls([table], **options)
    kept, norms = [], []
    for t in range(1, STEPS[-1] + 1):
        table.grad = None
        for b in range(how.get("batches", 1)):
            y = torch.nn.functional.embedding(index(t + b), table, padding_idx=how.get("padding_idx"), sparse=True)
            torch.sin(3 * y + 0.1 * t).sum().backward()
        assert table.grad.is_sparse
        if "clip" in how:
            # The norm is that of the rows with all their occurrences added up.
            table.grad = table.grad.coalesce()
            norms.append(torch.nn.utils.clip_grad_norm_([table], how["clip"]))
        opt.step()
        if t in STEPS:
            kept.append(table.detach().clone())
    out[f"{name}/p"] = torch.stack(kept)
    if norms:
        out[f"{name}/norm"] = torch.stack(norms)
save("sparse.safetensors", out)
