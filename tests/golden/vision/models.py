#!/usr/bin/env python3
"""Makes the golden values of networks for images with torchvision:

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
}


def write_names():
    lines = ["# made by models.py with torchvision " + torchvision.__version__]
    with torch.device("meta"):
        nets = {name: torchvision.models.get_model(name) for name in NETWORKS}
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
        x = torch.from_numpy(uniform("x", 4 * 3 * 32 * 32)).reshape(4, 3, 32, 32) * 2
        with torch.no_grad():
            out[f"{name}/logits"] = net.eval()(x)
        loss = net.train()(x).square().mean()
        loss.backward()
        out[f"{name}/loss"] = loss.detach()
        out[f"{name}/grad"] = torch.stack([p.grad.norm() for p in net.parameters()])
    path = os.path.join(HERE, "models.safetensors")
    print(path, write_safetensors(path, out, {"torch": torch.__version__, "torchvision": torchvision.__version__}))


if __name__ == "__main__":
    write_names()
    write_models()
