#!/usr/bin/env python3
"""Training steps of GANs: python3 tests/golden/gan/steps.py. The networks are those of networks.py.

The initial state, images, latents and the penalty's alpha come from the formula of golden.h. steps.safetensors holds, for
each case, in f64 after the first step, with the largest error of PyTorch's own f32 under ".err":

    <case>/d/<name>, <case>/g/<name>              gradients of the discriminator's and the generator's loss
    <case>/penalty/<name>                         gradients of the penalty alone
    <case>/disc/<name>, gen/<name>, ema/<name>    state after one step of Adam, and the generator's average
    <case>/losses                                 [20,2]: the losses of 20 steps
    <case>/penalties                              [20]
"""
import copy
import json
import os
import struct
import sys

import numpy as np
import torch
from torch.nn import functional as F

import networks as n

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH, EMA = 20, 4, 0.9


def uniform(name, count):
    """golden.h's uniform: count numbers in [-1, 1), multiples of 2^-15."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    z = (np.arange(count, dtype=np.uint64) + np.uint64(h)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(48)).astype(np.float64) / 32768 - 1


def rand(name, *shape):
    return torch.from_numpy(uniform(name, int(np.prod(shape, dtype=np.int64)))).reshape(shape)


def value_of(name, t):
    """The initial tensor of a state: weights about as large as layers start with."""
    if name.endswith("num_batches_tracked"):
        return torch.zeros_like(t)
    u = rand(name, *t.shape)
    if name.endswith("running_var"):
        return 1 + u / 2
    if name.endswith("weight_orig"):
        return 2 * u
    if t.dim() > 1 and name.endswith("weight") and ".LN2d." not in name:
        fan = t.numel() // t.shape[0]
        return u * 2.0 ** np.floor(np.log2(np.sqrt(6 / fan)) + 0.5)
    return 1 + u / 4 if name.endswith("weight") else u / 8


def filled(net, dtype):
    net.load_state_dict({k: value_of(k, t) for k, t in net.state_dict().items()})
    return net.to(dtype).train()


def vanilla_d(real, fake):
    ones, zeros = torch.ones_like(real), torch.zeros_like(fake)
    return F.binary_cross_entropy_with_logits(real, ones) + F.binary_cross_entropy_with_logits(fake, zeros)


def vanilla_g(fake):
    return F.binary_cross_entropy_with_logits(fake, torch.ones_like(fake))


LOSSES = {
    "vanilla": (vanilla_d, vanilla_g),
    "smoothed": (lambda r, f: F.binary_cross_entropy_with_logits(r, torch.full_like(r, 0.9))
                 + F.binary_cross_entropy_with_logits(f, torch.full_like(f, 0.1)),
                 lambda f: F.binary_cross_entropy_with_logits(f, torch.full_like(f, 0.9))),
    "logistic": (lambda r, f: F.softplus(-r).mean() + F.softplus(f).mean(), lambda f: F.softplus(-f).mean()),
    "lsgan": (lambda r, f: (r - 1).square().mean() + f.square().mean(), lambda f: (f - 1).square().mean()),
    "half_lsgan": (lambda r, f: 0.5 * ((r - 1).square().mean() + f.square().mean()),
                   lambda f: 0.5 * (f - 1).square().mean()),
    "wgan": (lambda r, f: f.mean() - r.mean(), lambda f: -f.mean()),
    "hinge": (lambda r, f: F.relu(1 - r).mean() + F.relu(1 + f).mean(), lambda f: -f.mean()),
}


def gradient_penalty(disc, real, fake, alpha, per_pixel=False):
    a = alpha.reshape(-1, *[1] * (real.dim() - 1)).to(real.dtype)
    x = (a * real + (1 - a) * fake).detach().requires_grad_()
    g, = torch.autograd.grad(disc(x).sum(), x, create_graph=True)
    norms = g.norm(2, 1) if per_pixel else g.flatten(1).norm(2, 1)
    return (norms - 1).square().mean()


def r1(disc, real, fake, alpha):
    x = real.detach().requires_grad_()
    g, = torch.autograd.grad(disc(x).sum(), x, create_graph=True)
    return g.square().flatten(1).sum(1).mean()


def run(case, dtype):
    gen, disc = filled(case["gen"](), dtype), filled(case["disc"](), dtype)
    average = copy.deepcopy(gen)
    loss_d, loss_g = LOSSES[case["loss"]]
    penalty_of, weight = case.get("penalty", (None, 0))
    g_args, d_args = case.get("g_args", {}), case.get("d_args", {})
    G, D = lambda z: gen(z, **g_args), lambda x: disc(x, **d_args)
    adam = lambda net: torch.optim.Adam(net.parameters(), lr=case["lr"], betas=case["betas"], eps=1e-3)
    opt_d, opt_g = adam(disc), adam(gen)
    out, losses, penalties = {}, [], []

    def grads(prefix, net, values=None):
        for i, (name, p) in enumerate(net.named_parameters()):
            g = p.grad if values is None else values[i]
            out[f"{prefix}/{name}"] = torch.zeros_like(p) if g is None else g.clone()

    for step in range(STEPS):
        real = rand(f"real{step}", BATCH, *case["image"]).to(dtype)
        z = lambda which: (2 * rand(f"z{which}{step}", BATCH, case["latent"])).to(dtype)
        alpha = (rand(f"alpha{step}", BATCH) + 1) / 2
        opt_d.zero_grad()
        fake = G(z("d")).detach()
        loss = loss_d(D(real), D(fake))
        if penalty_of:
            penalty = penalty_of(D, real, fake, alpha)
            penalties.append(penalty.item())
            if step == 0:
                alone = torch.autograd.grad(penalty, list(disc.parameters()), retain_graph=True, allow_unused=True)
                grads("penalty", disc, alone)
            loss = loss + weight * penalty
        if case.get("drift"):
            loss = loss + case["drift"] * D(real).square().mean()
        loss.backward()
        if step == 0:
            grads("d", disc)
        opt_d.step()
        opt_g.zero_grad()
        g_loss = loss_g(D(G(z("g"))))
        g_loss.backward()
        if step == 0:
            grads("g", gen)
        opt_g.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), gen.parameters()):
                a.copy_(EMA * a + (1 - EMA) * p)
            for a, b in zip(average.buffers(), gen.buffers()):
                a.copy_(b)
        losses.append([loss.item(), g_loss.item()])
        if step == 0:
            for prefix, net in (("disc", disc), ("gen", gen), ("ema", average)):
                out.update({f"{prefix}/{k}": t.detach().clone() for k, t in net.state_dict().items()})
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    out["penalties"] = torch.tensor(penalties, dtype=torch.float64)
    return out


def cases():
    pggan = dict(base=16, decay=1, most=4)
    grown = dict(g_args=dict(size=16, fade=0.7), d_args=dict(fade=0.7), latent=5, image=(3, 16, 16),
                 gen=lambda: n.PGGANGenerator(32, 3, 5, 0, mmgen=False, **pggan),
                 disc=lambda: n.PGGANDiscriminator(32, 3, 0, group=2, mmgen=False, **pggan), lr=1e-3, betas=(0.0, 0.99))
    mmgen = dict(grown, gen=lambda: n.PGGANGenerator(32, 3, 5, 0, mmgen=True, **pggan),
                 disc=lambda: n.PGGANDiscriminator(32, 3, 0, group=4, mmgen=True, **pggan))
    dcgan = dict(gen=lambda: n.dcgan_generator(16, 1, 2, 6), disc=lambda: n.dcgan_discriminator(16, 1, 2),
                 latent=6, image=(1, 16, 16), lr=2e-3, betas=(0.5, 0.999))
    wgan = dict(gen=lambda: n.WGANGPGenerator(8, 3, 5, 16, 4), disc=lambda: n.WGANGPDiscriminator(8, 3, 16, 4, "GN"),
                latent=5, image=(3, 8, 8), lr=1e-3, betas=(0.5, 0.9))
    return {
        "dcgan": dict(dcgan, loss="vanilla"),
        "dcgan_smoothed": dict(dcgan, loss="smoothed"),
        "lsgan": dict(gen=lambda: n.LSGANGenerator(32, 1, 4, 3), disc=lambda: n.LSGANDiscriminator(32, 1, 2), latent=3,
                      image=(1, 32, 32), lr=1e-3, betas=(0.5, 0.99), loss="lsgan"),
        "half_lsgan": dict(dcgan, loss="half_lsgan"),
        "wgan_gp": dict(wgan, loss="wgan", penalty=(gradient_penalty, 10)),
        "wgan_gp_layer_norm": dict(wgan, disc=lambda: n.WGANGPDiscriminator(8, 3, 16, 4, "LN2d"), loss="wgan",
                                   penalty=(gradient_penalty, 10)),
        "wgan_gp_per_pixel": dict(wgan, loss="wgan",
                                  penalty=(lambda *xs: gradient_penalty(*xs, per_pixel=True), 10)),
        "wgan_gp_small": dict(gen=lambda: n.SmallGenerator(28, 1, 5, 1, False, torch.sigmoid),
                              disc=lambda: n.small_discriminator(1, 1), latent=5, image=(1, 28, 28), lr=1e-3,
                              betas=(0.5, 0.9), loss="wgan", penalty=(gradient_penalty, 10)),
        "hinge": dict(wgan, loss="hinge"),
        "pggan": dict(grown, loss="wgan", penalty=(gradient_penalty, 10), drift=0.001),
        "pggan_mmgen": dict(mmgen, loss="wgan", penalty=(gradient_penalty, 10)),
        "pggan_r1": dict(grown, loss="logistic", penalty=(r1, 5)),
    }


def main():
    torch.set_num_threads(1)
    header = {"__metadata__": {"torch": torch.__version__, "made_by": "steps.py"}}
    blobs, at = [], 0

    def put(key, t):
        nonlocal at
        t = t.detach().contiguous()
        blob = t.numpy().tobytes()
        name = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64"}[t.dtype]
        header[key] = {"dtype": name, "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)

    for name, case in cases().items():
        exact, single = run(case, torch.float64), run(case, torch.float32)
        for key, t in exact.items():
            put(f"{name}/{key}", t)
            if t.is_floating_point() and t.numel():
                put(f"{name}/{key}.err", (single[key].double() - t.double()).abs().max())
        print(name, exact["losses"][0].tolist(), exact["losses"][-1].tolist())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(HERE, "steps.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.writelines(blobs)
    print(8 + len(text) + at, "bytes")


if __name__ == "__main__":
    main()
