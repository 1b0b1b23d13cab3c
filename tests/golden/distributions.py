#!/usr/bin/env python3
"""Makes distributions.safetensors with PyTorch's torch.distributions, in f64:

    python3 tests/golden/distributions.py          # needs python3-torch; the test itself does not

<case>/<parameter>, <case>/q_<parameter>: of the distribution and of another one; <case>/x: values
<case>/log_prob, entropy, kl; <case>/d_<of>_<parameter>: gradients of log_prob, entropy and kl, each times a formula
"""
import torch
from torch.distributions import Bernoulli, Categorical, Normal, kl_divergence

from make_golden import formula, save

torch.set_default_dtype(torch.float64)


def case(out, name, make, parameters, others, x):
    parameters = {k: v.clone().requires_grad_() for k, v in parameters.items()}
    p, q = make(**parameters), make(**others)
    values = {"log_prob": p.log_prob(x), "entropy": p.entropy(), "kl": kl_divergence(p, q)}
    for key, v in {**parameters, **{"q_" + k: v for k, v in others.items()}, "x": x, **values}.items():
        out[f"{name}/{key}"] = v
    for key, y in values.items():
        if torch.isfinite(y).all():
            gradients = torch.autograd.grad((y * formula(y.shape, 9)).sum(), list(parameters.values()), retain_graph=True, allow_unused=True)
            for (parameter, v), g in zip(parameters.items(), gradients):
                out[f"{name}/d_{key}_{parameter}"] = torch.zeros_like(v) if g is None else g


def main():
    out = {}
    case(out, "normal", Normal, dict(loc=formula((3, 1), 1, 2), scale=formula((4,), 2, 0.9) + 1),
         dict(loc=formula((3, 4), 3), scale=formula((3, 4), 4, 0.5) + 1), formula((2, 3, 4), 5, 3))
    case(out, "far", Normal, dict(loc=torch.tensor([1e6, 0.0]), scale=torch.tensor([1e-6, 1e8])),
         dict(loc=torch.tensor([1e6, 3.0]), scale=torch.tensor([1e-3, 1e6])), torch.tensor([1e6 + 1e-5, 1e9]))

    x = torch.tensor([[0, 4, 2], [3, 1, 1]])
    case(out, "categorical_logits", Categorical, dict(logits=formula((3, 5), 1, 6)), dict(logits=formula((3, 5), 2, 3)), x)
    case(out, "categorical_probs", Categorical, dict(probs=formula((3, 5), 3, 0.5) + 0.6), dict(probs=formula((3, 5), 4, 0.5) + 0.6), x)
    case(out, "categorical_zeros", Categorical, dict(probs=torch.tensor([[0.5, 0.0, 0.5], [0.25, 0.5, 0.25], [0.0, 0.0, 1.0]])),
         dict(probs=torch.tensor([[0.25, 0.0, 0.75], [0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])), torch.tensor([2, 1, 2]))

    x = torch.tensor([[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    case(out, "bernoulli_logits", Bernoulli, dict(logits=formula((2, 4), 5, 30)), dict(logits=formula((2, 4), 6, 4)), x)
    case(out, "bernoulli_probs", Bernoulli, dict(probs=formula((2, 4), 7, 0.49) + 0.5), dict(probs=formula((2, 4), 8, 0.49) + 0.5), x)
    case(out, "bernoulli_sure", Bernoulli, dict(probs=torch.tensor([0.0, 1.0, 1.0, 0.5])), dict(probs=torch.tensor([0.0, 1.0, 0.0, 1.0])), x)
    save("distributions.safetensors", out)


main()
