#!/usr/bin/env python3
"""PyTorch's results for the layers of image.cc: padding, resizing, windows.

python3 tests/nn/layers/image.py writes image.safetensors, whose format golden.py describes.
"""
from torch import nn

from golden import Family

f = Family("image")
signal, image, volume = f.rand(2, 2, 4), f.rand(1, 4, 3, 4), f.rand(1, 1, 3, 2, 3)
f.case("ConstantPad1d", lambda: nn.ConstantPad1d((1, 2), 0.5), signal)
f.case("ConstantPad2d", lambda: nn.ConstantPad2d((1, -1, 0, 2), 3), image)
f.case("ConstantPad3d", lambda: nn.ConstantPad3d(1, -1), volume)
f.case("ZeroPad2d", lambda: nn.ZeroPad2d((1, 2, 3, 0)), image)
f.case("ZeroPad2d/unbatched", lambda: nn.ZeroPad2d(1), image[0])
f.case("ReflectionPad1d", lambda: nn.ReflectionPad1d((3, 1)), signal)
f.case("ReflectionPad2d", lambda: nn.ReflectionPad2d((1, 2, 2, 0)), image)
f.case("ReflectionPad3d", lambda: nn.ReflectionPad3d(1), volume)
f.case("ReplicationPad1d", lambda: nn.ReplicationPad1d((2, 5)), signal)
f.case("ReplicationPad2d", lambda: nn.ReplicationPad2d(2), image)
f.case("ReplicationPad3d", lambda: nn.ReplicationPad3d((1, 0, 2, 1, 0, 1)), volume)
f.case("Upsample", lambda: nn.Upsample(scale_factor=2), image)
f.case("Upsample/size", lambda: nn.Upsample(size=(5, 2), mode="bilinear", align_corners=True), image)
f.case("Upsample/linear", lambda: nn.Upsample(scale_factor=1.5, mode="linear", align_corners=False), signal)
f.case("PixelShuffle", lambda: nn.PixelShuffle(2), image)
f.case("PixelUnshuffle", lambda: nn.PixelUnshuffle(2), f.rand(1, 2, 4, 2))
f.case("Unfold", lambda: nn.Unfold((2, 3), dilation=1, padding=1, stride=2), image)
f.case("Fold", lambda: nn.Fold((4, 5), (2, 2), stride=(2, 1)), f.rand(1, 8, 8))
f.save()
