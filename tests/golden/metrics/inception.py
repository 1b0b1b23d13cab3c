#!/usr/bin/env python3
"""Makes inception.safetensors with PyTorch, torchvision, Pillow and NumPy, in f64:

    python3 tests/golden/metrics/inception.py           # the tests themselves need none of them

Weights, inputs and images are numbers from formulas (uniform, value_of).

    fid/<depth>, fid/logits, fid/logits_unbiased    of the network of FID, for x [3,3,139,123]
    fid/score                             Inception score of logits_unbiased / 100
    inception_v3/logits, loss, grad       torchvision's: logits in evaluation; in training without dropout, the mean of
                                          the squared logits and the norm of each gradient, for x [4,3,107,107]
    resize/<tf|clean>/<images>            pixels [N,3,23,28] of the network's input
    frechet                               of the 192 features of 4 and 3 images [3,24,24], by singular values
    vgg/hidden                            of a small VGG16
    lpips/rgb, lpips/gray                 distances of three pairs with the small VGG16
    path_length/z, w, crop                of a small generator; crop: at 512 pixels
"""
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from PIL import Image
from torchvision.models import vgg

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "resnet"))
from make_golden import uniform, value_of, write_safetensors


def numbers(name, *shape):
    return torch.from_numpy(uniform(name, int(np.prod(shape)))).reshape(shape)


def images(name, *shape):
    return ((numbers(name, *shape) + 1) * 127.5).round().to(torch.uint8)


def filled(net, prefix=""):
    net.load_state_dict({key: value_of(prefix + key, tuple(t.shape)) for key, t in net.state_dict().items()})
    return net.double().eval()


# ---- Inception v3 ----


def inside(x, kernel_size, stride, padding):
    return avg_pool2d(x, kernel_size, stride, padding, count_include_pad=False)


def maximum(x, kernel_size, stride, padding):
    return F.max_pool2d(x, kernel_size, stride, padding)


avg_pool2d = F.avg_pool2d


def set_pool(block, pool):
    original = block.forward

    def forward(x):
        F.avg_pool2d = pool
        try:
            return original(x)
        finally:
            F.avg_pool2d = avg_pool2d

    block.forward = forward


def inception(fid):
    net = torchvision.models.inception_v3(weights=None, num_classes=1008 if fid else 1000, aux_logits=False,
                                          init_weights=False)
    if fid:
        for name in ("5b", "5c", "5d", "6b", "6c", "6d", "6e", "7b"):
            set_pool(getattr(net, "Mixed_" + name), inside)
        set_pool(net.Mixed_7c, maximum)
    return filled(net)


def features_of(net, x):
    found = {}
    layers = {"64": net.maxpool1, "192": net.maxpool2, "768": net.Mixed_6e, "2048": net.Mixed_7c}
    hooks = [layer.register_forward_hook(lambda _, __, y, depth=depth: found.__setitem__(depth, y.mean((2, 3))))
             for depth, layer in layers.items()]
    with torch.no_grad():
        found["logits"] = net(x)
    for hook in hooks:
        hook.remove()
    return found


def score(logits):
    p = logits.softmax(1)
    return (p * (p / p.mean(0)).log()).sum(1).mean().exp()


def networks(out):
    net = inception(fid=True)
    found = features_of(net, numbers("x", 3, 3, 139, 123) * 2)
    found["logits_unbiased"] = found["logits"] - net.fc.bias.detach()
    found["score"] = score(found["logits_unbiased"] / 100)
    out.update({f"fid/{name}": t for name, t in found.items()})

    net, x = inception(fid=False), numbers("x", 4, 3, 107, 107) * 2
    with torch.no_grad():
        out["inception_v3/logits"] = net(x)
    net.train().dropout.p = 0
    loss = net(x).square().mean()
    loss.backward()
    out["inception_v3/loss"] = loss.detach()
    out["inception_v3/grad"] = torch.stack([p.grad.norm() for p in net.parameters()])


# ---- resizing ----


def tf_axis(x, dim, size):
    """TensorFlow 1: the position of pixel i is i * in / out."""
    n = x.size(dim)
    at = torch.arange(size, dtype=torch.float64) * n / size
    left = at.floor().long()
    t = (at - left).reshape([-1 if d == dim else 1 for d in range(4)])
    return x.index_select(dim, left) * (1 - t) + x.index_select(dim, (left + 1).clamp(max=n - 1)) * t


def tf(x):
    return tf_axis(tf_axis(x.double(), 3, 299), 2, 299)


def clean(x):
    def channel(c):
        image = Image.fromarray(c.numpy().astype(np.float32)).resize((299, 299), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(image).clip(0, 255).astype(np.float64))
    return torch.stack([torch.stack([channel(c) for c in image]) for image in x])


def network_input(x, resize):
    return (resize(x.expand(-1, 3, -1, -1)) - 128) / 128


def resizing(out):
    for name, shape in {"small": (2, 1, 32, 32), "wide": (1, 3, 40, 350), "large": (1, 3, 512, 640)}.items():
        for resize in (tf, clean):
            y = network_input(images(name, *shape), resize)
            out[f"resize/{resize.__name__}/{name}"] = y[:, :, ::13, ::11].contiguous()


def frechet(a, b):
    """The trace of the root of the product of two covariances A A^T and B B^T is the sum of the singular values of A^T B."""
    ca, cb = ((x - x.mean(0)) / (len(x) - 1) ** 0.5 for x in (a, b))
    trace = torch.linalg.svdvals(ca @ cb.T).sum()
    return (a.mean(0) - b.mean(0)).square().sum() + ca.square().sum() + cb.square().sum() - 2 * trace


def distances(out):
    net = inception(fid=True)
    sets = [features_of(net, network_input(images(name, n, 3, 24, 24), tf))["192"] for name, n in (("a", 4), ("b", 3))]
    out["frechet"] = frechet(*sets)


# ---- VGG, LPIPS, path length ----


def small_vgg(prefix=""):
    layers = [n if n == "M" else n // 16 for n in vgg.cfgs["D"]]
    net = vgg.VGG(vgg.make_layers(layers), init_weights=False)
    net.classifier = nn.Sequential(nn.Linear(32 * 49, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 16), nn.ReLU(),
                                   nn.Dropout(), nn.Linear(16, 10))
    return filled(net, prefix)


class Lpips:
    def __init__(self):
        self.layers = small_vgg("vgg.").features
        self.lin = [value_of(f"lin{i}.model.1.weight", (1, c, 1, 1)) for i, c in enumerate((4, 8, 16, 32, 32))]

    def maps(self, x):
        shift, scale = (torch.tensor(v, dtype=torch.float64).reshape(3, 1, 1)
                        for v in ([-.030, -.088, -.188], [.458, .448, .450]))
        x = (x - shift) / scale
        found = []
        for layer in self.layers[:-1]:
            if isinstance(layer, nn.MaxPool2d):
                found.append(x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10))
            x = layer(x)
        return [*found, x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)]

    def __call__(self, a, b):
        with torch.no_grad():
            return sum((F.conv2d((x - y).square(), w)).mean((1, 2, 3))
                       for x, y, w in zip(self.maps(a), self.maps(b), self.lin))


def slerp(a, b, t):
    a, b = a / a.norm(dim=1, keepdim=True), b / b.norm(dim=1, keepdim=True)
    angle = t[:, None] * (a * b).sum(1, keepdim=True).acos()
    c = b - (a * b).sum(1, keepdim=True) * a
    return (a * angle.cos() + c / c.norm(dim=1, keepdim=True) * angle.sin()) * a.size(1) ** 0.5


def path_length(gen, distance, path, n, latent, crop=False):
    a, b, t = numbers("a", n, latent) * 2, numbers("b", n, latent) * 2, (numbers("t", n) + 1) / 2
    x, y = gen(path(a, b, t)), gen(path(a, b, t + 1e-4))
    if crop:
        h, w = x.size(2) // 8, x.size(3) // 8
        x, y = x[:, :, 3 * h:7 * h, 2 * w:6 * w], y[:, :, 3 * h:7 * h, 2 * w:6 * w]
        x, y = (v.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).mean((3, 5)) for v in (x, y))
    d = (distance(x, y) / 1e-8).numpy()
    low, high = np.percentile(d, 1, method="lower"), np.percentile(d, 99, method="higher")
    return torch.tensor(d[(d >= low) & (d <= high)].mean())


def perceptual(out):
    net = small_vgg()
    with torch.no_grad():
        h = net.avgpool(net.features(numbers("x", 2, 3, 40, 48) * 2)).flatten(1)
        out["vgg/hidden"] = net.classifier[:4](h)
    lpips = Lpips()
    a, b = numbers("a", 3, 3, 48, 40), numbers("b", 3, 3, 48, 40)
    out["lpips/rgb"] = lpips(a, b)
    out["lpips/gray"] = lpips(a[:, :1].expand_as(a), b[:, :1].expand_as(b))

    gen = lambda z: (z @ numbers("m", 8, 768) / 2).tanh().reshape(-1, 3, 16, 16)
    lerp = lambda a, b, t: a + (b - a) * t[:, None]
    out["path_length/z"] = path_length(gen, lpips, slerp, 250, 8)
    out["path_length/w"] = path_length(gen, lpips, lerp, 250, 8)
    large = lambda z: gen(z).repeat_interleave(32, 2).repeat_interleave(32, 3) * numbers("n", 512, 512)
    squares = lambda a, b: (a - b).square().mean((1, 2, 3))
    out["path_length/crop"] = path_length(large, squares, slerp, 3, 8, crop=True)


def main():
    out = {}
    for part in (networks, resizing, distances, perceptual):
        part(out)
    path = os.path.join(HERE, "inception.safetensors")
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__, "pillow": Image.__version__}
    print(path, write_safetensors(path, out, versions))


if __name__ == "__main__":
    main()
