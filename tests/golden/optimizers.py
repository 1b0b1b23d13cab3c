#!/usr/bin/env python3
"""Makes optimizers.safetensors and schedules.safetensors with PyTorch, in f64:

    python3 tests/golden/optimizers.py          # needs python3-torch; the tests themselves do not

optimizers.safetensors  <case>/p0, p1: parameters after the steps in `steps`; the gradient at step t is 0.5 p + sin(3 p + 0.1 t)
                        clip/<norm_type>/norm, g0, g1: gradients clipped; average/<case>/p0, p1: averaged parameters
schedules.safetensors   <case>: learning rates of two groups, epoch by epoch; <case>/momentum: of the first group

LAMB, LARS and Lion, which PyTorch lacks, are written out below from their papers. So is NAdam: PyTorch 1.13 multiplies
mu_t into the product of the next step twice, which it later corrected.
"""
import math

import numpy as np
import torch

from make_golden import formula, save

# PyTorch keeps some numbers of its optimizers in the default dtype.
torch.set_default_dtype(torch.float64)

STEPS = [1, 10, 100, 1000]


class FromPaper:
    """groups of (parameters, options), one step of which is `update(p, g, state, options)` in numpy."""

    def __init__(self, groups, **options):
        self.groups = [(g["params"], {**self.defaults, **options, **{k: v for k, v in g.items() if k != "params"}}) for g in groups]
        self.states = {}

    def step(self):
        for params, options in self.groups:
            for p in params:
                state = self.states.setdefault(id(p), {"t": 0})
                state["t"] += 1
                x, g = p.detach().numpy(), p.grad.numpy()
                x[...] = self.update(x.copy(), -g if options["maximize"] else g, state, **options)


def moments(state, g, betas):
    m = state["m"] = betas[0] * state.get("m", 0 * g) + (1 - betas[0]) * g
    v = state["v"] = betas[1] * state.get("v", 0 * g) + (1 - betas[1]) * g * g
    return m, v


class LAMB(FromPaper):
    """You et al., arXiv:1904.00962, algorithm 2, with phi(z) = min(z, max_norm)."""

    defaults = dict(betas=(0.9, 0.999), eps=1e-6, weight_decay=0, max_norm=0, bias_correction=True, maximize=False)

    def update(self, p, g, state, lr, betas, eps, weight_decay, max_norm, bias_correction, maximize):
        m, v = moments(state, g, betas)
        if bias_correction:
            m, v = m / (1 - betas[0] ** state["t"]), v / (1 - betas[1] ** state["t"])
        u = m / (np.sqrt(v) + eps) + weight_decay * p
        phi, size = np.sqrt((p * p).sum()), np.sqrt((u * u).sum())
        if max_norm:
            phi = min(phi, max_norm)
        return p - lr * (phi / size if phi > 0 and size > 0 else 1) * u


class LARS(FromPaper):
    """You et al., arXiv:1708.03888, algorithm 1."""

    defaults = dict(momentum=0.9, weight_decay=0, trust_coefficient=1e-3, eps=0, maximize=False)

    def update(self, p, g, state, lr, momentum, weight_decay, trust_coefficient, eps, maximize):
        w, size = np.sqrt((p * p).sum()), np.sqrt((g * g).sum())
        local = trust_coefficient * w / (size + weight_decay * w + eps) if w > 0 and size > 0 else 1
        v = state["v"] = momentum * state.get("v", 0 * p) + lr * local * (g + weight_decay * p)
        return p - v


class Lion(FromPaper):
    """Chen et al., arXiv:2302.06675, algorithm 2."""

    defaults = dict(betas=(0.9, 0.99), weight_decay=0, maximize=False)

    def update(self, p, g, state, lr, betas, weight_decay, maximize):
        m = state.get("m", 0 * p)
        u = np.sign(betas[0] * m + (1 - betas[0]) * g)
        state["m"] = betas[1] * m + (1 - betas[1]) * g
        return p - lr * (u + weight_decay * p)


class NAdam(FromPaper):
    """Dozat, ICLR 2016 workshop, with PyTorch's schedule of mu."""

    defaults = dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3, maximize=False)

    def update(self, p, g, state, lr, betas, eps, weight_decay, momentum_decay, maximize):
        g = g + weight_decay * p
        t = state["t"]
        mu = betas[0] * (1 - 0.5 * 0.96 ** (t * momentum_decay))
        following = betas[0] * (1 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
        product = state["product"] = state.get("product", 1.0) * mu
        m, v = moments(state, g, betas)
        ahead = following * m / (1 - product * following) + (1 - mu) * g / (1 - product)
        return p - lr * ahead / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


def optimizer_cases():
    O = torch.optim
    return {
        "sgd": (O.SGD, dict(lr=0.1)),
        "sgd_momentum": (O.SGD, dict(lr=0.1, momentum=0.9)),
        "sgd_dampening": (O.SGD, dict(lr=0.1, momentum=0.9, dampening=0.2)),
        "sgd_nesterov": (O.SGD, dict(lr=0.05, momentum=0.9, nesterov=True)),
        "sgd_weight_decay": (O.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.05)),
        "sgd_maximize": (O.SGD, dict(lr=0.001, momentum=0.5, maximize=True)),
        "adam": (O.Adam, dict(lr=0.01)),
        "adam_options": (O.Adam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
        "adam_amsgrad": (O.Adam, dict(lr=0.02, amsgrad=True)),
        "adam_maximize": (O.Adam, dict(lr=0.001, maximize=True)),
        "adamw": (O.AdamW, dict(lr=0.01)),
        "adamw_options": (O.AdamW, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2)),
        "adamw_amsgrad": (O.AdamW, dict(lr=0.02, amsgrad=True)),
        "adamw_maximize": (O.AdamW, dict(lr=0.001, maximize=True)),
        "adadelta": (O.Adadelta, dict(lr=1.0)),
        "adadelta_options": (O.Adadelta, dict(lr=0.7, rho=0.8, eps=1e-5, weight_decay=0.05)),
        "adadelta_maximize": (O.Adadelta, dict(lr=0.1, maximize=True)),
        "adagrad": (O.Adagrad, dict(lr=0.1)),
        "adagrad_options": (O.Adagrad, dict(lr=0.2, lr_decay=0.01, weight_decay=0.1, initial_accumulator_value=0.3, eps=1e-6)),
        "adagrad_maximize": (O.Adagrad, dict(lr=0.01, maximize=True)),
        "rmsprop": (O.RMSprop, dict(lr=0.01)),
        "rmsprop_momentum": (O.RMSprop, dict(lr=0.003, momentum=0.9, weight_decay=0.1, alpha=0.9)),
        "rmsprop_centered": (O.RMSprop, dict(lr=0.01, centered=True, eps=1e-4)),
        "rmsprop_both": (O.RMSprop, dict(lr=0.002, centered=True, momentum=0.8, eps=1e-3)),
        "rmsprop_maximize": (O.RMSprop, dict(lr=0.001, maximize=True)),
        "adamax": (O.Adamax, dict(lr=0.01)),
        "adamax_options": (O.Adamax, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1)),
        "adamax_maximize": (O.Adamax, dict(lr=0.001, maximize=True)),
        "nadam": (NAdam, dict(lr=0.01)),
        "nadam_options": (NAdam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, momentum_decay=0.01)),
        "nadam_maximize": (NAdam, dict(lr=0.001, maximize=True)),
        "radam": (O.RAdam, dict(lr=0.01)),
        "radam_options": (O.RAdam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
        "rprop": (O.Rprop, dict(lr=0.01)),
        "rprop_options": (O.Rprop, dict(lr=0.02, etas=(0.4, 1.3), step_sizes=(1e-3, 0.1))),
        "rprop_maximize": (O.Rprop, dict(lr=0.001, step_sizes=(1e-6, 0.01), maximize=True)),
        "asgd": (O.ASGD, dict(lr=0.05)),
        "asgd_options": (O.ASGD, dict(lr=0.1, lambd=1e-2, alpha=0.6, t0=5, weight_decay=0.05)),
        "asgd_maximize": (O.ASGD, dict(lr=0.001, maximize=True)),
        "lion": (Lion, dict(lr=0.003)),
        "lion_options": (Lion, dict(lr=0.002, betas=(0.95, 0.98), weight_decay=0.1)),
        "lion_maximize": (Lion, dict(lr=0.001, maximize=True)),
        "lamb": (LAMB, dict(lr=0.01)),
        "lamb_options": (LAMB, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1, max_norm=2.0)),
        "lamb_uncorrected": (LAMB, dict(lr=0.01, bias_correction=False)),
        "lamb_maximize": (LAMB, dict(lr=0.001, maximize=True)),
        "lars": (LARS, dict(lr=1.0)),
        "lars_options": (LARS, dict(lr=2.0, momentum=0.8, weight_decay=0.05, trust_coefficient=5e-3, eps=1e-4)),
        "lars_maximize": (LARS, dict(lr=0.2, maximize=True)),
    }


def make_optimizers():
    """Two parameters in two groups, the second with half the learning rate."""
    out = {"steps": torch.tensor(STEPS)}
    for name, (cls, options) in optimizer_cases().items():
        p = [formula((3, 4), 1, 2.0).requires_grad_(), formula((5,), 2, 2.0).requires_grad_()]
        opt = cls([{"params": [p[0]]}, {"params": [p[1]], "lr": options["lr"] / 2}], **options)
        kept = [[], []]
        for t in range(1, STEPS[-1] + 1):
            for x in p:
                x.grad = 0.5 * x.detach() + torch.sin(3 * x.detach() + 0.1 * t)
            opt.step()
            if t in STEPS:
                for k, x in enumerate(p):
                    kept[k].append(x.detach().clone())
                if cls is torch.optim.ASGD:
                    kept[0][-1] = torch.cat([kept[0][-1].reshape(-1), opt.state[p[0]]["ax"].reshape(-1)])
        for k in (0, 1):
            out[f"{name}/p{k}"] = torch.stack(kept[k])
            assert torch.isfinite(out[f"{name}/p{k}"]).all(), name
    for norm_type in (0.5, 1, 2, 3.5, math.inf):
        for max_norm in (0.7, 100):
            p = [formula((3, 4), 1), formula((5,), 2)]
            for k, x in enumerate(p):
                x.grad = formula(x.shape, 7 + k, 3.0)
            key = f"clip/{norm_type}/{max_norm}"
            out[f"{key}/norm"] = torch.nn.utils.clip_grad_norm_(p, max_norm, norm_type)
            for k, x in enumerate(p):
                out[f"{key}/g{k}"] = x.grad
    make_averages(out)
    save("optimizers.safetensors", out)


def make_averages(out):
    """A model of one parameter and one buffer that an `update` at a time replaces by formulas."""
    from torch.optim.swa_utils import AveragedModel

    def ema(decay):
        return lambda average, value, n: decay(n) * average + (1 - decay(n)) * value

    cases = {
        "equal": (None, False),
        "equal_buffers": (None, True),
        "decay": (ema(lambda n: 0.9), False),
        "decay_buffers": (ema(lambda n: 0.9), True),
        # n updates were made before this one.
        "warm_up": (ema(lambda n: min(0.9, (1 + float(n)) / (10 + float(n)))), False),
        # From an average of 0, each divided by the sum of its weights.
        "corrected": (ema(lambda n: 0.9 * (1 - 0.9 ** float(n)) / (1 - 0.9 ** (float(n) + 1))), False),
    }
    for name, (avg_fn, use_buffers) in cases.items():
        model = torch.nn.Module()
        model.register_parameter("weight", torch.nn.Parameter(formula((3, 4), 1)))
        model.register_buffer("mean", formula((5,), 2))
        averaged = AveragedModel(model, avg_fn=avg_fn, use_buffers=use_buffers)
        for t in range(12):
            with torch.no_grad():
                model.weight.copy_(formula((3, 4), 10 + t))
                model.mean.copy_(formula((5,), 40 + t))
            averaged.update_parameters(model)
            if not use_buffers:
                averaged.module.mean.copy_(model.mean)  # as later versions do
        out[f"average/{name}/weight"] = averaged.module.weight
        out[f"average/{name}/mean"] = averaged.module.mean


def schedule_cases():
    from torch.optim.swa_utils import SWALR

    S = torch.optim.lr_scheduler
    halves = lambda epoch: 0.5 ** (epoch // 4)
    rational = lambda epoch: 1 / (1 + 0.25 * epoch)

    def after_warm_up(o):
        warm_up = S.LinearLR(o, 0.125, total_iters=6)
        return S.SequentialLR(o, [warm_up, S.CosineAnnealingLR(o, 30, eta_min=0.01)], [6])

    def three(o):
        return S.SequentialLR(
            o, [S.ConstantLR(o, 0.25, 3), S.ExponentialLR(o, 0.5), S.StepLR(o, 4, 0.5), S.PolynomialLR(o, 8, 2.0)], [4, 9, 20])

    def restarts_later(o):
        return S.SequentialLR(o, [S.LinearLR(o, 0.5, total_iters=4), S.CosineAnnealingWarmRestarts(o, 5, 2)], [5])

    def others_later(o):
        lambdas = S.LambdaLR(o, rational)
        return S.SequentialLR(o, [S.MultiStepLR(o, [2, 3], 0.5), lambdas, S.MultiplicativeLR(o, lambda e: 0.75), SWALR(o, 0.25, 5)], [6, 12, 18])

    def multiplicative_later(o):
        return S.SequentialLR(o, [S.StepLR(o, 2, 0.5), S.MultiplicativeLR(o, lambda e: 1 / (2 + 0.25 * e)), S.ConstantLR(o, 0.5, 3)], [5, 9])

    return {
        "lambda": lambda o: S.LambdaLR(o, rational),
        "lambda_list": lambda o: S.LambdaLR(o, [halves, rational]),
        "multiplicative": lambda o: S.MultiplicativeLR(o, rational),
        "step_1": lambda o: S.StepLR(o, 1, 0.7),
        "step_3": lambda o: S.StepLR(o, 3, 0.1),
        "multi_step": lambda o: S.MultiStepLR(o, [4, 11, 11, 30], 0.2),
        "constant": lambda o: S.ConstantLR(o),
        "constant_0": lambda o: S.ConstantLR(o, 0.3, total_iters=0),
        "linear": lambda o: S.LinearLR(o),
        "linear_down": lambda o: S.LinearLR(o, 0.9, 0.1, total_iters=17),
        "exponential": lambda o: S.ExponentialLR(o, 0.9),
        "polynomial": lambda o: S.PolynomialLR(o),
        "polynomial_2": lambda o: S.PolynomialLR(o, 30, 2.5),
        "cosine": lambda o: S.CosineAnnealingLR(o, 40, eta_min=0.05),
        "cosine_again": lambda o: S.CosineAnnealingLR(o, 7),
        "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 10),
        "restarts_mult": lambda o: S.CosineAnnealingWarmRestarts(o, 4, 2, eta_min=0.02),
        "one_cycle": lambda o: S.OneCycleLR(o, 1.5, 60),
        "one_cycle_groups": lambda o: S.OneCycleLR(o, [1.0, 2.0], epochs=6, steps_per_epoch=10, pct_start=0.25, anneal_strategy="linear",
                                                   base_momentum=[0.7, 0.8], max_momentum=0.9, div_factor=10.0, final_div_factor=100.0),
        "one_cycle_three": lambda o: S.OneCycleLR(o, 1.5, 60, three_phase=True, cycle_momentum=False),
        "cyclic": lambda o: S.CyclicLR(o, 0.1, 1.0, step_size_up=7),
        "cyclic_2": lambda o: S.CyclicLR(o, [0.1, 0.2], [1.0, 0.5], 5, 8, mode="triangular2", base_momentum=[0.6, 0.7], max_momentum=0.95),
        "cyclic_exp": lambda o: S.CyclicLR(o, 0.1, 1.0, 6, mode="exp_range", gamma=0.97, cycle_momentum=False),
        "cyclic_custom": lambda o: S.CyclicLR(o, 0.1, 1.0, 6, scale_fn=lambda x: 1 / (1 + x), scale_mode="iterations"),
        "swa": lambda o: SWALR(o, 0.05),
        "swa_linear": lambda o: SWALR(o, [0.05, 0.9], anneal_epochs=20, anneal_strategy="linear"),
        "swa_at_once": lambda o: SWALR(o, 0.05, anneal_epochs=0),
        "after_warm_up": after_warm_up,
        "three": three,
        "restarts_later": restarts_later,
        "others_later": others_later,
        "multiplicative_later": multiplicative_later,
        "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 5), S.ExponentialLR(o, 0.9)]),
        "chained_warm_up": lambda o: S.ChainedScheduler([S.LinearLR(o, 0.25, total_iters=8), S.CosineAnnealingLR(o, 50), S.MultiStepLR(o, [20], 0.5)]),
    }


def losses(n):
    return [1 / (1 + 0.3 * t) + 0.2 * math.sin(0.9 * t) + (0.1 if t > 30 else 0) for t in range(n)]


def make_schedules(epochs=60):
    S = torch.optim.lr_scheduler
    out = {}

    def run(name, make, step):
        p = [torch.zeros(1, requires_grad=True) for _ in range(2)]
        opt = torch.optim.SGD([{"params": [p[0]]}, {"params": [p[1]], "lr": 0.3}], lr=0.8, momentum=0.5)
        schedule = make(opt)
        rates, momenta = [], []
        for t in range(epochs):
            rates.append([g["lr"] for g in opt.param_groups])
            momenta.append(opt.param_groups[0]["momentum"])
            opt.step()
            step(schedule, t)
        out[name] = torch.tensor(rates)
        if len(set(momenta)) > 1:
            out[name + "/momentum"] = torch.tensor(momenta)

    for name, make in schedule_cases().items():
        run(name, make, lambda schedule, t: schedule.step())
    values = losses(epochs)
    for name, options in {
        "plateau": dict(patience=2),
        "plateau_max": dict(mode="max", patience=3, factor=0.5, threshold_mode="abs", threshold=0.05, cooldown=2),
        "plateau_min_abs": dict(patience=1, factor=0.7, threshold_mode="abs", threshold=0.01, cooldown=4, min_lr=[0.2, 0.01]),
        "plateau_max_rel": dict(mode="max", patience=0, factor=0.9, threshold=0.1, min_lr=0.05, eps=1e-3),
    }.items():
        run(name, lambda o: S.ReduceLROnPlateau(o, **options), lambda schedule, t: schedule.step(values[t]))
    out["plateau_metrics"] = torch.tensor(values)
    save("schedules.safetensors", out)


if __name__ == "__main__":
    make_optimizers()
    make_schedules()
