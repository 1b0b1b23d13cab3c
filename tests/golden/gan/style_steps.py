#!/usr/bin/env python3
"""Training steps of StyleGAN and StyleGAN2: python3 tests/golden/gan/style_steps.py. The networks are those of
stylegan.py and stylegan2.py; parameters and inputs come from the formula of steps.py.

    <case>/losses                     [5,4]: of 5 steps, the discriminator's loss, R1's, the generator's, the path length's
    <case>/disc/<name>, gen/<name>    parameters, and the average of styles, after the last step
    <case>/path_length                the running mean of path lengths
"""
import json
import os
import struct

import torch
from torch.nn import functional as F

import stylegan
import stylegan2
from steps import rand

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH, LATENT = 5, 4, 5


def initial(name, p):
    """The learning rates of the mapping are multiplied by 0.01, and its weights divided by it."""
    u = rand(name, *p.shape)
    if name.startswith(("mapping.", "style_mapping.")) and p.dim() > 1:
        return 100 * u
    if name.startswith("synthesis.") and name.endswith("affine.bias"):
        return 1 + u / 8
    return u if p.dim() > 1 else u / 8


def filled(net):
    with torch.no_grad():
        for name, p in net.double().named_parameters():
            p.copy_(initial(name, p))
        for name, b in net.named_buffers():
            if name.endswith("w_avg"):
                b.zero_()
    return net


def lazy_adam(net, k):
    c = k / (k + 1) if k else 1
    return torch.optim.Adam(net.parameters(), lr=1e-2 * c, betas=(0.0, 0.99**c), eps=1e-3)


def r1(disc, x):
    x = x.clone().requires_grad_()
    g, = torch.autograd.grad(disc(x).sum(), x, create_graph=True)
    return g.square().flatten(1).sum(1).mean()


def train(gen, disc, synthesize, judge, w_avg, planes, size, every, out):
    """every: steps between penalties of StyleGAN2; 0: R1 is part of the loss, and there is no path length penalty."""
    opt_d, opt_g = lazy_adam(disc, every), lazy_adam(gen, every)
    mean, losses = torch.zeros((), dtype=torch.float64), []

    def images(what, batch=BATCH):
        ws = gen.mapping(2 * rand(f"{what}z", BATCH, LATENT)[:batch])
        with torch.no_grad():
            w_avg.copy_(0.995 * w_avg + 0.005 * ws[:, 0].mean(0))
        cut = torch.tensor([2, ws.shape[1], 3, 1])[:batch, None, None]
        other = gen.mapping(2 * rand(f"{what}mixed", BATCH, LATENT)[:batch])
        ws = torch.where(torch.arange(ws.shape[1])[:, None] < cut, ws, other)
        noise = [rand(f"{what}noise{i}", BATCH, 1, s, s)[:batch] for i, s in enumerate(planes)]
        return synthesize(ws, noise), ws

    def step(opt, loss):
        opt.zero_grad()
        loss.backward()
        # Of R1, biases before the last leaky ReLUs have gradients of zeros, and none in Gradus: Adam skips them.
        for group in opt.param_groups:
            for p in group["params"]:
                if p.grad is not None and not p.grad.any():
                    p.grad = None
        opt.step()
        return loss.item()

    for i in range(STEPS):
        row, real = [0.0] * 4, rand(f"real{i}", BATCH, 1, size, size)
        with torch.no_grad():
            fake, _ = images(f"d{i}")
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake)).mean()
        if every:
            row[0] = step(opt_d, loss)
            if i % every == 0:
                row[1] = step(opt_d, every * 5 * r1(judge, real))
        else:
            row[1] = 5 * r1(judge, real)
            row[0] = step(opt_d, loss + row[1])
            row[1] = row[1].item()
        row[2] = step(opt_g, F.softplus(-judge(images(f"g{i}")[0])).mean())
        if every and i % every == 0:
            made, ws = images(f"path{i}", BATCH // 2)
            y = rand(f"y{i}", BATCH // 2, 1, size, size) / size
            g, = torch.autograd.grad((made * y).sum(), ws, create_graph=True)
            lengths = g.square().sum(2).mean(1).sqrt()
            new_mean = mean + 0.01 * (lengths.mean() - mean)
            mean = new_mean.detach()
            row[3] = step(opt_g, every * 2 * (lengths - new_mean).square().mean())
        losses.append(row)
    out["losses"], out["path_length"] = torch.tensor(losses, dtype=torch.float64), mean
    for prefix, net in (("disc", disc), ("gen", gen)):
        out.update({f"{prefix}/{name}": p.detach() for name, p in net.named_parameters()})
    out["gen/w_avg"] = w_avg
    print(losses)


def main():
    torch.set_num_threads(1)
    tensors = {}

    def case(name, *args):
        out = {}
        train(*args, out)
        tensors.update({f"{name}/{key}": t for key, t in out.items()})

    gen = filled(stylegan.StyleGANGenerator(8, 1, LATENT, 4, 2, 16, 4))
    disc = filled(stylegan.StyleGANDiscriminator(8, 1, 16, 4))
    case("stylegan", gen, disc, lambda ws, noise: gen.synthesis(ws, 8, 0.7, noise), lambda x: disc(x, 0.7), gen.w_avg,
         [4, 4, 8, 8], 8, 0)
    gen2, disc2 = filled(stylegan2.Generator(8, 32, 4, LATENT, 4, 2, channels=1)), filled(stylegan2.Discriminator(8, 32, 4, 1))
    case("stylegan2", gen2, disc2, gen2.synthesis, disc2, gen2.mapping.w_avg, [4, 8, 8], 8, 2)

    header, blobs, at = {"__metadata__": {"torch": torch.__version__, "made_by": "style_steps.py"}}, [], 0
    for name, t in tensors.items():
        blob = t.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F64", "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(HERE, "style_steps.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)
    print(8 + len(text) + at, "bytes")


if __name__ == "__main__":
    main()
