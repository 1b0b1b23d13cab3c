#!/usr/bin/env python3
"""Makes lbfgs.safetensors with PyTorch, in f64: python3 tests/golden/lbfgs.py

<case>/p0, p1          parameters after each step, stacked
<case>/losses          what each step returned
<case>/evaluations     of the closure so far, after each step; <case>/iterations alike

The first parameter is [2,3], the second [4]; `bowl` and `valley` are the losses, as in lbfgs_test.cc.
"""
import torch

from make_golden import formula, save

torch.set_default_dtype(torch.float64)


def bowl(a, b):
    x = torch.cat([a.reshape(-1), b])
    return (0.5 * x * x - torch.cos(3 * x + 0.1) / 3).sum() + 0.05 * x.sum() ** 2


def valley(a, b):
    """Rosenbrock's function, chained."""
    x = torch.cat([a.reshape(-1), b])
    return (10 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


WOLFE = dict(line_search_fn="strong_wolfe")
CASES = {
    "fixed": (bowl, 5, dict(lr=0.3, max_iter=4)),
    "fixed_default": (bowl, 2, dict(lr=0.4)),
    "fixed_history": (bowl, 6, dict(lr=0.3, max_iter=3, history_size=2)),
    "fixed_maximize": (lambda a, b: -bowl(a, b), 4, dict(lr=0.3, max_iter=4, maximize=True)),
    "wolfe": (bowl, 4, dict(max_iter=3, **WOLFE)),
    "wolfe_default": (bowl, 1, dict(**WOLFE)),
    "wolfe_valley": (valley, 6, dict(max_iter=5, **WOLFE)),
    "wolfe_history": (valley, 6, dict(max_iter=4, history_size=3, **WOLFE)),
    "wolfe_few": (valley, 8, dict(max_iter=4, max_eval=3, **WOLFE)),
    "wolfe_far": (valley, 4, dict(lr=20, max_iter=4, max_eval=30, **WOLFE)),
    "wolfe_short": (valley, 2, dict(lr=1e-4, max_iter=4, max_eval=30, **WOLFE)),
    "wolfe_maximize": (lambda a, b: -valley(a, b), 4, dict(max_iter=4, maximize=True, **WOLFE)),
    "wolfe_tolerances": (bowl, 4, dict(tolerance_grad=1e-2, tolerance_change=1e-3, **WOLFE)),
}

out = {}
for name, (loss_of, steps, options) in CASES.items():
    params = [formula((2, 3), 1, 1.5).requires_grad_(), formula((4,), 2, 1.5).requires_grad_()]
    opt = torch.optim.LBFGS(params, **options)

    def closure():
        opt.zero_grad()
        loss = loss_of(*params)
        loss.backward()
        return loss

    rows, losses, evaluations, iterations = [[], []], [], [], []
    for _ in range(steps):
        losses.append(opt.step(closure).detach())
        for row, p in zip(rows, params):
            row.append(p.detach().clone())
        evaluations.append(opt.state[params[0]]["func_evals"])
        iterations.append(opt.state[params[0]]["n_iter"])
    out[f"{name}/p0"], out[f"{name}/p1"] = torch.stack(rows[0]), torch.stack(rows[1])
    out[f"{name}/losses"] = torch.stack(losses)
    out[f"{name}/evaluations"], out[f"{name}/iterations"] = torch.tensor(evaluations), torch.tensor(iterations)
    print(name, [f"{l.item():.3g}" for l in losses], evaluations, iterations)
save("lbfgs.safetensors", out)
