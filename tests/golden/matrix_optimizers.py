#!/usr/bin/env python3
"""Makes matrix_optimizers.safetensors with PyTorch: 20 steps of Adafactor and of Muon.

    python3 tests/golden/matrix_optimizers.py          # needs PyTorch 2.9; the test itself does not

<case>/p0, p1, ...: parameters after the steps in `steps`, and <case>/<state>0, ...: states after the last one, in f64. The
gradient at step t is 0.5 p + sin(3 p + 0.1 t). The second half of the parameters has half the learning rate.

torch.optim.Muon orthogonalizes in bf16, whatever the parameter's dtype. "muon..." replaces this function by the same
formula in f64. "bf16_muon..." has PyTorch's own function; its results depend on how a processor rounds sums in bf16.
"""
import torch

from make_golden import formula, save

torch.set_default_dtype(torch.float64)
STEPS = [1, 5, 20]
MATRICES = [(4, 6), (6, 4), (5, 5), (1, 3)]


def orthogonalize(u, coefficients, steps, eps):
    a, b, c = coefficients
    x = u.T if u.size(0) > u.size(1) else u
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if u.size(0) > u.size(1) else x


def cases():
    O = torch.optim
    shapes = [(3, 4), (5,), (2, 4, 3), ()]
    yield "adafactor", O.Adafactor, dict(), shapes
    yield "adafactor_options", O.Adafactor, dict(lr=0.05, beta2_decay=-0.6, eps=(1e-6, 0.01), d=1.5, weight_decay=0.1), shapes
    yield "adafactor_clipped", O.Adafactor, dict(lr=0.3, eps=(1.5, 2.0)), shapes
    yield "adafactor_maximize", O.Adafactor, dict(lr=0.01, maximize=True), shapes
    muons = {
        "": dict(lr=0.02),
        "_options": dict(lr=0.05, weight_decay=0.3, momentum=0.8, nesterov=False, ns_coefficients=(3.0, -3.2, 1.2), eps=3.0, ns_steps=3),
        "_rms": dict(lr=0.02, adjust_lr_fn="match_rms_adamw"),
        "_spectral": dict(lr=0.02, adjust_lr_fn="spectral_unclamped"),
    }
    for name, options in muons.items():
        yield "muon" + name, O.Muon, options, MATRICES
    yield "bf16_muon", O.Muon, dict(lr=0.02), MATRICES


def main():
    module = torch.optim._muon
    in_bf16 = module._zeropower_via_newtonschulz
    out = {"steps": torch.tensor(STEPS)}
    for name, cls, options, shapes in cases():
        module._zeropower_via_newtonschulz = in_bf16 if name.startswith("bf16") else orthogonalize
        params = [formula(shape, k + 1, 2.0).requires_grad_() for k, shape in enumerate(shapes)]
        half = len(params) // 2
        lr = options.get("lr", 1e-2)
        opt = cls([{"params": params[:half]}, {"params": params[half:], "lr": lr / 2}], **options)
        kept = [[] for _ in params]
        for t in range(1, STEPS[-1] + 1):
            for p in params:
                x = p.detach()
                p.grad = 0.5 * x + torch.sin(3 * x + 0.1 * t)
            opt.step()
            if t in STEPS:
                for k, p in enumerate(params):
                    kept[k].append(p.detach().clone())
        for k, p in enumerate(params):
            out[f"{name}/p{k}"] = torch.stack(kept[k])
            for state, value in opt.state[p].items():
                if state != "step":
                    out[f"{name}/{state}{k}"] = value
    save("matrix_optimizers.safetensors", out)


main()
