#!/usr/bin/env python3
"""Checkpoints as mmgeneration writes them: python3 tests/golden/gan/mmgeneration.py. Restated from its descriptions; all
but DCGAN are those of networks.py and stylegan.py. Weights and inputs come from the formula of steps.py.

mmgeneration.safetensors holds, for each case, in f64 and in evaluation mode:

    <case>/generator.<name>, discriminator.<name>    the checkpoint
    <case>/z, <case>/images                          latents, and the images of the generator: BGR, or gray
    <case>/x, <case>/scores                          other images, and their scores
"""
import os
import sys

import torch
from torch import nn

import networks as n
import stylegan as s
from steps import rand, value_of

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "tools"))
from export_weights import write_safetensors


def stage(conv, act, out=None):
    return n.ConvBlock(conv, act, **({} if out is None else {"bn": nn.BatchNorm2d(out)}))


class DCGANGenerator(nn.Module):
    def __init__(self, size, channels, width, latent):
        super().__init__()
        deconv = lambda a, b, *how: stage(nn.ConvTranspose2d(a, b, 4, *how, bias=False), nn.ReLU(), b)
        self.noise2feat, layers = deconv(latent, width), []
        while size > 8:
            layers.append(deconv(width, width // 2, 2, 1))
            width, size = width // 2, size // 2
        self.upsampling = nn.Sequential(*layers)
        self.output_layer = stage(nn.ConvTranspose2d(width, channels, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.output_layer(self.upsampling(self.noise2feat(n.column(z))))


class DCGANDiscriminator(nn.Module):
    def __init__(self, size, channels, width, outputs):
        super().__init__()
        layers = [stage(nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU())]
        while size > 8:
            layers.append(stage(nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.LeakyReLU(), 2 * width))
            width, size = 2 * width, size // 2
        self.downsamples = nn.Sequential(*layers)
        self.output_layer = stage(nn.Conv2d(width, outputs, 4), nn.Identity())

    def forward(self, x):
        return self.output_layer(self.downsamples(x)).flatten(1)


CASES = {  # generator, discriminator, latent, images
    "dcgan": (DCGANGenerator(16, 3, 4, 5), DCGANDiscriminator(16, 3, 2, 2), 5, (3, 16, 16)),
    "dcgan_gray": (DCGANGenerator(32, 1, 8, 3), DCGANDiscriminator(32, 1, 2, 1), 3, (1, 32, 32)),
    "lsgan": (n.LSGANGenerator(32, 3, 4, 3), n.LSGANDiscriminator(32, 3, 2), 3, (3, 32, 32)),
    "wgan_gp": (n.WGANGPGenerator(8, 3, 3, 16, 4), n.WGANGPDiscriminator(8, 3, 16, 4, "GN"), 3, (3, 8, 8)),
    "pggan": (n.PGGANGenerator(8, 3, 3, 0, 16, 1, 4, True), n.PGGANDiscriminator(8, 3, 0, 16, 1, 4, 4, True), 3, (3, 8, 8)),
    "stylegan": (s.StyleGANGenerator(8, 3, 5, 5, 2, 8, 4, True, True), s.StyleGANDiscriminator(8, 3, 8, 4, 4, True, True),
                 5, (3, 8, 8)),
}


def images(gen, z):
    if isinstance(gen, s.StyleGANGenerator):
        return gen.synthesis(gen.mapping(z), 8, 1, gen.fixed_noise(8))
    return gen(z)


@torch.no_grad()
def main():
    out = {}
    for case, (gen, disc, latent, image) in CASES.items():
        z, x = rand(case + "/z", 2, latent), rand(case + "/x", 4, *image)
        for name, net in (("generator.", gen), ("discriminator.", disc)):
            state = {key: value_of(key, t).to(t if t.dtype == torch.int64 else torch.float64)
                     for key, t in net.state_dict().items() if not key.endswith(".kernel")}
            state |= {key: t.double() for key, t in net.state_dict().items() if key.endswith(".kernel")}
            net.double().eval().load_state_dict(state)
            out.update({f"{case}/{name}{key}": t for key, t in state.items()})
        out |= {f"{case}/z": z, f"{case}/images": images(gen, z), f"{case}/x": x, f"{case}/scores": disc(x)}
    path = os.path.join(HERE, "mmgeneration.safetensors")
    print(path, write_safetensors(path, out, {"torch": torch.__version__.split("+")[0]}), "bytes")


if __name__ == "__main__":
    main()
