#!/usr/bin/env python3
"""Makes the golden values of networks for images with torchvision, and with the layers of
github.com/milesial/Pytorch-UNet:

    python3 tests/golden/vision/models.py           # needs torch and torchvision; the tests themselves do not

names.txt           of every network: how many tensors and elements its state has, a hash of their names and shapes, the
                    last dropout's p, the eps and momentum of the batch norms (0: there are none)
models.safetensors  of a small network of each family, in f64 with numbers from a formula: logits in evaluation; in
                    training, without dropout, the mean of the squared logits and the norm of each gradient
"""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torchvision.models import efficientnet, vgg, vision_transformer

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "resnet"))
from make_golden import fnv1a, uniform, value_of, write_safetensors

# PyTorch's gradient of hardsigmoid has 1/6 rounded to f32 also in f64.
nn.Hardsigmoid.forward = lambda self, x: F.relu6(x + 3) / 6

NETWORKS = [f"vgg{n}{bn}" for n in (11, 13, 16, 19) for bn in ("", "_bn")]
NETWORKS += ["vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14", "mobilenet_v3_small", "mobilenet_v3_large"]
NETWORKS += [f"efficientnet_b{i}" for i in range(8)]


class DoubleConv(nn.Module):
    def __init__(self, c_in, c_out, middle=None):
        super().__init__()
        middle = middle or c_out
        self.double_conv = nn.Sequential(
            nn.Conv2d(c_in, middle, 3, padding=1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU())

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(c_in, c_out))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, c_in, c_out, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(c_in, c_out, c_in // 2)
        else:
            self.up = nn.ConvTranspose2d(c_in, c_in // 2, 2, stride=2)
            self.conv = DoubleConv(c_in, c_out)

    def forward(self, x, skip):
        x = self.up(x)
        h, w = (skip.size(d) - x.size(d) for d in (2, 3))
        return self.conv(torch.cat([skip, F.pad(x, [w // 2, w - w // 2, h // 2, h - h // 2])], 1))


class OutConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels=3, n_classes=2, bilinear=False, w=64):
        super().__init__()
        factor = 2 if bilinear else 1
        self.inc = DoubleConv(n_channels, w)
        self.down1, self.down2, self.down3 = Down(w, 2 * w), Down(2 * w, 4 * w), Down(4 * w, 8 * w)
        self.down4 = Down(8 * w, 16 * w // factor)
        self.up1 = Up(16 * w, 8 * w // factor, bilinear)
        self.up2 = Up(8 * w, 4 * w // factor, bilinear)
        self.up3 = Up(4 * w, 2 * w // factor, bilinear)
        self.up4 = Up(2 * w, w, bilinear)
        self.outc = OutConv(w, n_classes)

    def forward(self, x):
        h1 = self.inc(x)
        h2 = self.down1(h1)
        h3 = self.down2(h2)
        h4 = self.down3(h3)
        return self.outc(self.up4(self.up3(self.up2(self.up1(self.down4(h4), h4), h3), h2), h1))


def small_vgg(batch_norm):
    net = vgg.VGG(vgg.make_layers([4, "M", 8, "M", 16, 16, "M"], batch_norm), init_weights=False)
    net.classifier = nn.Sequential(nn.Linear(16 * 49, 16), nn.ReLU(), nn.Dropout(0), nn.Linear(16, 16), nn.ReLU(),
                                   nn.Dropout(0), nn.Linear(16, 10))
    return net


def small_efficientnet():
    stages, last = efficientnet._efficientnet_conf("efficientnet_b0", width_mult=0.25, depth_mult=1.5)
    return efficientnet.EfficientNet(stages, 0, 0, 10, last_channel=last)


SMALL = {
    "vgg": lambda: small_vgg(False),
    "vgg_bn": lambda: small_vgg(True),
    "vit": lambda: vision_transformer.VisionTransformer(32, 8, 2, 2, 16, 24, num_classes=10),
    "mobilenet_v3_small": lambda: torchvision.models.mobilenet_v3_small(width_mult=0.25, num_classes=10, dropout=0),
    "mobilenet_v3_large": lambda: torchvision.models.mobilenet_v3_large(width_mult=0.35, num_classes=10, dropout=0),
    "efficientnet": small_efficientnet,
    "unet": lambda: UNet(w=4),
    "unet_bilinear": lambda: UNet(bilinear=True, w=4),
}


def write_names():
    lines = ["# made by models.py with torchvision " + torchvision.__version__]
    with torch.device("meta"):
        nets = {name: torchvision.models.get_model(name) for name in NETWORKS}
        nets |= {"unet": UNet(), "unet_bilinear": UNet(bilinear=True)}
    for name, net in nets.items():
        state = net.state_dict()
        names = "".join(f"{key} [{','.join(map(str, t.shape))}]\n" for key, t in state.items())
        dropout = [m.p for m in net.modules() if isinstance(m, nn.Dropout)][-1:] or [0]
        norm = [(m.eps, m.momentum) for m in net.modules() if isinstance(m, nn.BatchNorm2d)][:1] or [(0, 0)]
        lines.append(f"{name} {len(state)} {sum(p.numel() for p in net.parameters())} {fnv1a(names):016x} "
                     f"{dropout[0]} {norm[0][0]} {norm[0][1]}")
    with open(os.path.join(HERE, "names.txt"), "w") as out:
        out.write("\n".join(lines) + "\n")


def write_models():
    out = {}
    for name, make in SMALL.items():
        net = make()
        net.load_state_dict({key: value_of(key, tuple(t.shape)) for key, t in net.state_dict().items()})
        net.double()
        unet = name.startswith("unet")
        h, w = (36, 44) if unet else (32, 32)
        x = torch.from_numpy(uniform("x", 4 * 3 * h * w)).reshape(4, 3, h, w) * 2
        with torch.no_grad():
            logits = net.eval()(x)
            out[f"{name}/logits"] = logits[..., :8] if unet else logits
        loss = net.train()(x).square().mean()
        loss.backward()
        out[f"{name}/loss"] = loss.detach()
        out[f"{name}/grad"] = torch.stack([p.grad.norm() for p in net.parameters()])
    path = os.path.join(HERE, "models.safetensors")
    print(path, write_safetensors(path, out, {"torch": torch.__version__, "torchvision": torchvision.__version__}))


if __name__ == "__main__":
    write_names()
    write_models()
