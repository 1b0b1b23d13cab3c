#!/usr/bin/env python3
"""Trains the DCGAN of `./run gan --model dcgan` on MNIST in PyTorch, and writes samples that Gradus evaluates.

Both programs have the same networks, initial distributions, losses, optimizers and average of the generator's weights,
and see as many images. Their random numbers differ. To compare them, install PyTorch and numpy, nothing else:

    python3 -m venv torch && torch/bin/pip install 'torch>=2.15' numpy

Train with both, and let one program judge both:

    torch/bin/python tools/gan_pytorch.py --data DIR --width 32 --images 600k --seed 1 --out pytorch.safetensors
    ./run gan evaluate --samples pytorch.safetensors --data DIR
    ./run gan evaluate --samples pytorch.ema.safetensors --data DIR
    ./run gan --model dcgan --data DIR --size 32 --width 32 --batch 128 --images 600k --seed 1

DIR has train-images-idx3-ubyte.gz. pytorch.safetensors has samples of the generator, pytorch.ema.safetensors those of
the averaged weights for the same latents: each one tensor "images", u8[N,1,32,32].

The same seed and number of threads give the same files again, on the same machine with the same PyTorch.
"""
import argparse
import copy
import gzip
import json
import math
import os
import re
import resource
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from export_weights import write_safetensors

LATENT = 100
WARM_UP = 10  # steps that the speed of a warm program leaves out: the first ones choose kernels, or compile them
LAST = 100  # steps whose mean losses the summary has


def generator(size, channels, width):
    """Vectors [N,100,1,1] to images in [-1,1]. `width` is the last hidden layer's; each layer before has twice as
    many channels."""
    wide = width * size // 8
    layers = [nn.ConvTranspose2d(LATENT, wide, 4, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
    while wide > width:
        layers += [nn.ConvTranspose2d(wide, wide // 2, 4, 2, 1, bias=False), nn.BatchNorm2d(wide // 2), nn.ReLU()]
        wide //= 2
    layers += [nn.ConvTranspose2d(width, channels, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers).apply(initialize)


def discriminator(size, channels, width):
    """Images to logits [N,1,1,1]. `width` is the first hidden layer's; each layer behind has twice as many channels."""
    layers = [nn.Conv2d(channels, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for _ in range(int(math.log2(size // 8))):
        layers += [nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2)]
        width *= 2
    layers += [nn.Conv2d(width, 1, 4, bias=False)]
    return nn.Sequential(*layers).apply(initialize)


def initialize(layer):
    if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(layer.weight, 0, 0.02)
    elif isinstance(layer, nn.BatchNorm2d):
        nn.init.normal_(layer.weight, 1, 0.02)
        nn.init.zeros_(layer.bias)


def parameters(net):
    return sum(p.numel() for p in net.parameters())


def read_mnist(folder):
    """Returns the training images with two pixels of background around them: u8[60000,1,32,32]."""
    path = os.path.join(folder, "train-images-idx3-ubyte.gz")
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (OSError, EOFError) as e:
        raise SystemExit(f"cannot read {path}: {e}")
    header = np.frombuffer(content[:16], ">u4")
    if len(header) < 4 or header[0] != 2051 or tuple(header[2:]) != (28, 28) or len(content) != 16 + header[1] * 784:
        raise SystemExit(f"{path} has no IDX images of 28x28")
    images = np.frombuffer(content, np.uint8, offset=16).reshape(-1, 1, 28, 28)
    return torch.from_numpy(np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2))))


def batches(images, size, random):
    """Batches in [-1,1] without end. Each epoch has its own order, and leaves out the images that fill no batch."""
    while True:
        for indices in torch.randperm(len(images), generator=random).split(size):
            if len(indices) == size:
                yield images[indices].float() / 127.5 - 1


def bce(logits, label):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


@torch.no_grad()
def update_average(average, net, decay):
    for a, p in zip(average.parameters(), net.parameters()):
        a.lerp_(p, 1 - decay)
    for a, b in zip(average.buffers(), net.buffers()):
        a.copy_(b)


def train(args, images, gen, disc, average):
    """Returns the losses of all steps, [steps,2], and the seconds after each."""
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    for net in gen, disc, average:
        net.to(memory_format=layout)
    run_gen, run_disc = (torch.compile(gen), torch.compile(disc)) if args.compile else (gen, disc)
    adam = {"lr": 2e-4, "betas": (0.5, 0.999), "fused": True}  # fused: the fastest form
    opt_g, opt_d = torch.optim.Adam(gen.parameters(), **adam), torch.optim.Adam(disc.parameters(), **adam)
    reals, random = batches(images, args.batch, stream(args, 1)), stream(args, 2)
    decay = 0.5 ** (args.batch / args.ema_images)

    def latents():
        return torch.randn(args.batch, LATENT, 1, 1, generator=random)

    losses, seconds, steps, start = [], [], math.ceil(args.images / args.batch), time.perf_counter()
    for step in range(1, steps + 1):
        real = next(reals).contiguous(memory_format=layout)
        with torch.set_grad_enabled(not args.two_generations):
            fake = run_gen(latents())
        loss_d = bce(run_disc(real), 1) + bce(run_disc(fake.detach()), 0)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()

        if args.two_generations:
            fake = run_gen(latents())
        disc.requires_grad_(False)  # the generator's step makes no gradients for the discriminator's weights
        loss_g = bce(run_disc(fake), 1)
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        disc.requires_grad_(True)
        update_average(average, gen, decay)

        losses.append(torch.stack([loss_d.detach(), loss_g.detach()]))
        seconds.append(time.perf_counter() - start)
        if step % args.log_interval == 0 or step == steps:
            d, g = torch.stack(losses[-args.log_interval:]).mean(0).tolist()
            print(f"step {step}  {step * args.batch} images  loss/d {d:.4f}  loss/g {g:.4f}  "
                  f"{step * args.batch / seconds[-1]:.0f} images/s", flush=True)
    return torch.stack(losses), seconds


@torch.inference_mode()
def samples(args, net):
    """Returns images in evaluation mode: u8[N,C,H,W], the same latents at every call."""
    net.eval()
    random = stream(args, 3)
    z = torch.randn(args.samples, LATENT, 1, 1, generator=random)
    return torch.cat([((net(part) + 1) / 2).clamp(0, 1).mul(255).round().to(torch.uint8) for part in z.split(500)])


def stream(args, purpose):
    """Random numbers that are a purpose's own: 1 order of the data, 2 latents of training, 3 of samples. Initial
    weights have purpose 0."""
    return torch.Generator().manual_seed(4 * args.seed + purpose)


def count(text):
    """600, 600k or 2M."""
    match = re.fullmatch(r"(\d+)([kM]?)", text)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, or one with k or M, got {text}")
    return int(match[1]) * {"": 1, "k": 1000, "M": 1_000_000}[match[2]]


def place(text):
    """A file in a folder that is there: a long training should not end without a place for its result."""
    if not os.path.isdir(os.path.dirname(os.path.abspath(text))):
        raise argparse.ArgumentTypeError(f"there is no folder for {text}")
    return text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, metavar="DIR", help="folder of MNIST")
    p.add_argument("--size", type=int, default=32, choices=[32], help="of the images; MNIST with its background [32]")
    p.add_argument("--width", type=count, default=32, metavar="N", help="channels of the narrowest hidden layers [32]")
    p.add_argument("--batch", type=count, default=128, metavar="N", help="images per step [128]")
    p.add_argument("--images", type=count, default=600_000, metavar="N", help="ends when so many were shown [600k]")
    p.add_argument("--seed", type=int, default=1, metavar="S", help="[1]")
    p.add_argument("--threads", type=count, metavar="N", help="that compute; default: PyTorch's choice")
    p.add_argument("--two-generations", action="store_true",
                   help="new latents for the generator's step; default: both steps have the same generated images")
    p.add_argument("--ema-images", type=count, default=10_000, metavar="N",
                   help="half-life of the average of the generator's weights, in images [10000]")
    p.add_argument("--samples", type=count, default=10_000, metavar="N", help="images to write [10000]")
    p.add_argument("--out", type=place, metavar="FILE.safetensors",
                   help="samples; those of the averaged weights in FILE.ema.safetensors")
    p.add_argument("--channels-last", action="store_true", help="memory layout NHWC")
    p.add_argument("--compile", action="store_true", help="torch.compile of both networks; it needs a C++ compiler")
    p.add_argument("--log-interval", type=count, default=500, metavar="N", help="steps between two lines [500]")
    p.add_argument("--summary", type=place, metavar="FILE", help="speed and losses as JSON")
    args = p.parse_args()

    if args.seed < 0:
        p.error("--seed: expected 0 or more")
    if args.threads:
        torch.set_num_threads(args.threads)
    images = read_mnist(args.data)
    if args.batch > len(images):
        p.error(f"--batch: there are {len(images)} images")
    torch.manual_seed(4 * args.seed)
    gen, disc = generator(args.size, 1, args.width), discriminator(args.size, 1, args.width)
    average = copy.deepcopy(gen)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; parameters: generator {parameters(gen):,}, "
          f"discriminator {parameters(disc):,}", flush=True)

    losses, seconds = train(args, images, gen, disc, average)
    steps = len(seconds)
    if args.out:
        about = {"program": "tools/gan_pytorch.py", "torch": torch.__version__, "seed": args.seed,
                 "images": steps * args.batch, "two_generations": args.two_generations}
        stem = args.out.removesuffix(".safetensors")
        for path, net, weights in (args.out, gen, "plain"), (stem + ".ema.safetensors", average, "averaged"):
            write_safetensors(path, {"images": samples(args, net)}, {**about, "weights": weights})
            print(f"{path}: {args.samples} samples of the {weights} weights", flush=True)
    if args.summary:
        d, g = losses[-LAST:].mean(0).tolist()
        warm = (steps - WARM_UP) * args.batch / (seconds[-1] - seconds[WARM_UP - 1]) if steps > WARM_UP else None
        summary = {
            "program": "dcgan in PyTorch", "torch": torch.__version__, "seed": args.seed, "steps": steps,
            "images": steps * args.batch, "seconds": seconds[-1], "images_per_second": steps * args.batch / seconds[-1],
            "images_per_second_warm": warm, "loss_d": d, "loss_g": g,
            "generator_parameters": parameters(gen), "discriminator_parameters": parameters(disc),
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "device": "cpu", "threads": torch.get_num_threads(), "options": vars(args),
        }
        with open(args.summary, "w", encoding="utf-8") as file:
            json.dump(summary, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
