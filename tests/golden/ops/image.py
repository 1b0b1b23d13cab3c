#!/usr/bin/env python3
"""Resizing, padding and moving of image cells against PyTorch: python3 tests/golden/ops/image.py."""
import torch
import torch.nn.functional as F

from golden import Family

f = Family("image")


def resized(name, *shape, **options):
    f.case("interpolate/" + name, lambda x: F.interpolate(x, **options), f.rand(*shape))


resized("nearest 1d", 2, 3, 5, size=8)
resized("nearest 2d", 1, 9, 5, 4, scale_factor=(2, 1.7))
resized("nearest 3d", 1, 3, 3, 4, 5, size=(5, 2, 7))
resized("nearest-exact 2d", 2, 3, 5, 4, size=(9, 3), mode="nearest-exact")
resized("linear", 2, 3, 5, size=9, mode="linear")
resized("linear aligned", 2, 3, 5, size=9, mode="linear", align_corners=True)
resized("bilinear up", 1, 9, 5, 4, scale_factor=2, mode="bilinear")
resized("bilinear scale", 2, 3, 5, 7, scale_factor=(1.3, 0.6), mode="bilinear")
resized("bilinear aligned", 2, 3, 5, 4, size=(3, 9), mode="bilinear", align_corners=True)
resized("bilinear same", 2, 3, 5, 4, size=(5, 4), mode="bilinear")
resized("bilinear one", 1, 1, 1, 1, size=(3, 1), mode="bilinear")
resized("bicubic", 1, 9, 5, 4, size=(8, 3), mode="bicubic")
resized("bicubic aligned", 2, 3, 5, 4, scale_factor=1.5, mode="bicubic", align_corners=True)
resized("trilinear", 1, 3, 3, 4, 5, size=(5, 2, 7), mode="trilinear")
resized("trilinear aligned", 1, 9, 2, 3, 2, scale_factor=2, mode="trilinear", align_corners=True)
resized("area", 2, 3, 7, 5, size=(3, 4), mode="area")
resized("bilinear antialias", 1, 3, 11, 9, size=(4, 5), mode="bilinear", antialias=True)
resized("bicubic antialias", 1, 3, 11, 9, size=(4, 13), mode="bicubic", antialias=True)

f.case("pad/constant", lambda x: F.pad(x, (1, 2, 0, 3, 1, 0), value=1.5), f.rand(2, 2, 3, 4))
f.case("pad/crop", lambda x: F.pad(x, (-1, 2, 3, -2)), f.rand(2, 3, 4, 5))
f.case("pad/integers", lambda x: F.pad(x, (1, 1), value=7), f.ints(2, 3, below=9))
f.case("pad/reflect 1d", lambda x: F.pad(x, (2, 3), "reflect"), f.rand(2, 3, 4))
f.case("pad/reflect 2d", lambda x: F.pad(x, (1, 2, 3, 0), "reflect"), f.rand(1, 9, 4, 5))
f.case("pad/reflect 3d", lambda x: F.pad(x, (1, 2, 0, 1, 2, 1), "reflect"), f.rand(1, 1, 3, 4, 5))
f.case("pad/replicate 1d", lambda x: F.pad(x, (5, 1), "replicate"), f.rand(2, 3, 4))
f.case("pad/replicate 2d", lambda x: F.pad(x, (1, 6, 3, 0), "replicate"), f.rand(2, 3, 4, 5))
f.case("pad/replicate one image", lambda x: F.pad(x, (1, 2, 3, 1), "replicate"), f.rand(3, 4, 5))
f.case("pad/replicate 3d", lambda x: F.pad(x, (1, 2, 0, 1, 2, 1), "replicate"), f.rand(1, 1, 3, 4, 5))
f.case("pad/circular 1d", lambda x: F.pad(x, (4, 1), "circular"), f.rand(2, 3, 4))
f.case("pad/circular 2d", lambda x: F.pad(x, (1, 2, 3, 0), "circular"), f.rand(2, 3, 4, 5))
f.case("pad/circular 3d", lambda x: F.pad(x, (1, 2, 0, 1, 2, 1), "circular"), f.rand(1, 1, 3, 4, 5))

f.case("unfold", lambda x: F.unfold(x, 2), f.rand(2, 3, 4, 5))
f.case("unfold/options", lambda x: F.unfold(x, (3, 2), (2, 1), (1, 2), (1, 3)), f.rand(1, 3, 6, 5))
f.case("fold", lambda x: F.fold(x, (4, 5), 2), f.rand(2, 12, 12))
f.case("fold/options", lambda x: F.fold(x, (6, 5), (3, 2), (2, 1), (1, 2), (1, 3)), f.rand(1, 18, 12))

f.case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), f.rand(2, 12, 3, 4))
f.case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 3), f.rand(2, 2, 3, 6))
f.case("channel_shuffle", lambda x: F.channel_shuffle(x, 3), f.rand(2, 12, 3, 4), grad=False)  # PyTorch has no gradient

for mode in ("bilinear", "nearest"):
    for padding in ("zeros", "border", "reflection"):
        for aligned in (False, True):
            f.case(f"grid_sample/{mode} {padding}{' aligned' if aligned else ''}",
                   lambda x, g: F.grid_sample(x, g, mode, padding, aligned), f.rand(2, 2, 4, 5), f.rand(2, 3, 2, 2, lo=-1.9, hi=1.9))
f.case("affine_grid", lambda t: F.affine_grid(t, (2, 3, 4, 5), False), f.rand(2, 2, 3))
f.case("affine_grid/aligned", lambda t: F.affine_grid(t, (2, 3, 1, 5), True), f.rand(2, 2, 3))
f.save()
