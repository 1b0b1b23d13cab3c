#!/usr/bin/env python3
"""Makes metrics.safetensors with NumPy and SciPy, in f64: python3 tests/golden/metrics/metrics.py

    frechet/a, frechet/b                  features, twice as many samples as features; frechet/distance: SciPy's sqrtm
    images/a, images/b                    u8[4,3,64,64]
    swd/<k>/places_a, places_b, directions    of level k
    swd/pggan                             a distance for each level, and their mean
    ms_ssim/<size>/a, b, y                pairs of images and the similarity of each
    classes/p, reference, labels          and score, score_std, confident, covered, total_variation, agreement
    kernel/distance                       of frechet/a and frechet/b
    manifold/real, generated, precision, recall
"""
import json
import os
import struct

import numpy as np
import scipy
import scipy.linalg
import scipy.ndimage
import scipy.signal

HERE = os.path.dirname(os.path.abspath(__file__))
random = np.random.RandomState(8)


def images(n, channels, height, width):
    """Smooth ones with noise: alike enough for structural similarity to be no 0."""
    wide = scipy.ndimage.zoom(random.uniform(30, 220, (n, channels, 5, 5)), (1, 1, height / 5, width / 5), order=1)
    return np.clip(wide + random.uniform(-25, 25, wide.shape), 0, 255).astype(np.uint8)


def frechet(a, b):
    ca, cb = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = scipy.linalg.sqrtm(ca @ cb)
    assert abs(root.imag).max() < 1e-9
    return ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(ca) + np.trace(cb) - 2 * np.trace(root.real)


# ---- sliced Wasserstein distance ----

TAPS = np.array([1, 4, 6, 4, 1]) / 16
FILTER = np.outer(TAPS, TAPS)


def pyramid(x, levels):
    def smooth(x, gain=1):
        return scipy.ndimage.convolve(x, gain * FILTER[None, None], mode="mirror")

    out = [x]
    for _ in range(levels - 1):
        small = smooth(out[-1])[:, :, ::2, ::2]
        wide = np.zeros_like(out[-1])
        wide[:, :, ::2, ::2] = small
        out[-1] = out[-1] - smooth(wide, 4)
        out.append(small)
    return out


def patches(x, places):
    rows = [x[i, :, r - 3 : r + 4, c - 3 : c + 4] for i, image in enumerate(places) for r, c in image]
    p = np.stack(rows)
    p = (p - p.mean((0, 2, 3), keepdims=True)) / p.std((0, 2, 3), keepdims=True)
    return p.reshape(len(p), -1)


def swd(a, b, choices):
    distances = []
    for la, lb, (pa, pb, directions) in zip(pyramid(a, len(choices)), pyramid(b, len(choices)), choices):
        x, y = (np.sort(patches(l, p) @ directions.T, axis=0) for l, p in ((la, pa), (lb, pb)))
        distances.append(1000 * abs(x - y).mean())
    return np.array(distances + [np.mean(distances)])


# ---- structural similarity ----


def ssim(a, b):
    """[C,H,W]: means over positions and channels of structure and contrast."""
    size = min(11, *a.shape[1:])
    at = np.arange(size) - (size - 1) / 2
    w = np.exp(-(at**2) / (2 * (1.5 * size / 11) ** 2))
    w = np.outer(w, w)[None] / w.sum() ** 2
    smooth = lambda x: scipy.signal.fftconvolve(x, w, mode="valid")
    ma, mb = smooth(a), smooth(b)
    va, vb, vab = smooth(a * a) - ma**2, smooth(b * b) - mb**2, smooth(a * b) - ma * mb
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    contrast = (2 * vab + c2) / (va + vb + c2)
    return (contrast * (2 * ma * mb + c1) / (ma**2 + mb**2 + c1)).mean(), contrast.mean()


def ms_ssim(a, b):
    y, weights = 1.0, [0.0448, 0.2856, 0.3001, 0.2363, 0.1333]
    for level, weight in enumerate(weights):
        structure, contrast = ssim(a, b)
        y *= max(structure if level == 4 else contrast, 0) ** weight
        if level < 4:
            a, b = (x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2).mean((2, 4)) for x in (a, b))
    return y


# ---- the rest ----


def class_scores(p, reference, labels):
    scores = []
    for i in range(10):
        part = p[i * len(p) // 10 : (i + 1) * len(p) // 10]
        scores.append(np.exp((part * np.log(part / part.mean(0))).sum(1).mean()))
    shares, wanted = np.bincount(p.argmax(1), minlength=p.shape[1]) / len(p), reference / reference.sum()
    return {"score": np.mean(scores), "score_std": np.std(scores), "confident": (p.max(1) >= 0.9).mean(),
            "covered": ((shares >= wanted / 4) & (wanted > 0)).sum(), "total_variation": abs(shares - wanted).sum() / 2,
            "agreement": (p.argmax(1) == labels).mean(), "shares": shares}


def kernel_distance(a, b):
    k = lambda x, y: (x @ y.T / x.shape[1] + 1) ** 3
    within = lambda x: (k(x, x).sum() - np.trace(k(x, x))) / (len(x) * (len(x) - 1))
    return within(a) + within(b) - 2 * k(a, b).mean()


def share_inside(probes, of, k=3):
    between = lambda x, y: np.sqrt(((x[:, None] - y[None]) ** 2).sum(-1))
    radii = np.sort(between(of, of), axis=1)[:, k]
    return (between(probes, of) <= radii).any(1).mean()


def save(name, tensors):
    """Writes a safetensors file: u64 length of the header, the header in JSON, the bytes."""
    versions = {"numpy": np.__version__, "scipy": scipy.__version__}
    header, blobs, at = {"__metadata__": {**versions, "made_by": "metrics.py"}}, [], 0
    for key, value in tensors.items():
        value = np.asarray(value, order="C")
        dtype = {"float64": "F64", "int64": "I64", "uint8": "U8"}[str(value.dtype)]
        blobs.append(value.tobytes())
        header[key] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(HERE, name), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    print(name, len(tensors), "tensors,", 8 + len(text) + at, "bytes")


def main():
    out = {}
    mixed = lambda n, d, shift: random.normal(size=(n, d)) @ random.normal(size=(d, d)) / d**0.5 + shift
    a, b = mixed(48, 24, 0), mixed(48, 24, 0.3)
    out.update({"frechet/a": a, "frechet/b": b, "frechet/distance": frechet(a, b), "kernel/distance": kernel_distance(a, b)})

    a, b = images(4, 3, 64, 64), images(4, 3, 64, 64)
    out.update({"images/a": a, "images/b": b})
    choices = []
    for k in range(3):
        directions = random.normal(size=(8, 147))
        directions /= np.sqrt((directions**2).sum(1, keepdims=True))
        places = [random.randint(3, (64 >> k) - 3, (4, 10, 2)).astype(np.int64) for _ in "ab"]
        choices.append((*places, directions))
        out.update({f"swd/{k}/{name}": x for name, x in zip(("places_a", "places_b", "directions"), choices[-1])})
    x, y = a.astype(np.float64), b.astype(np.float64)
    out["swd/pggan"] = swd(x, y, choices)

    for height, width in ((64, 64), (16, 48), (160, 16)):
        a = images(3, 2 if height == 64 else 1, height, width)
        noise = random.uniform(-30, 30, a.shape) * np.array([1, 3, 0])[:, None, None, None]
        b = np.clip(a + noise, 0, 255).astype(np.uint8)
        if height == 16:
            b[1] = 255 - a[1]  # of negative structure
        y = np.array([ms_ssim(p.astype(np.float64), q.astype(np.float64)) for p, q in zip(a, b)])
        out.update({f"ms_ssim/{height}/a": a, f"ms_ssim/{height}/b": b, f"ms_ssim/{height}/y": y})

    p = np.exp(3 * random.normal(size=(83, 6)) - np.array([0, 0, 1, 2, 4, 9]))
    p /= p.sum(1, keepdims=True)
    reference, labels = np.array([10, 20, 30, 5, 35, 0]), random.randint(0, 6, 83).astype(np.int64)
    out.update({"classes/p": p, "classes/reference": reference, "classes/labels": labels})
    out.update({f"classes/{name}": x for name, x in class_scores(p, reference, labels).items()})

    real, generated = random.normal(size=(50, 4)), random.normal(size=(40, 4)) * 0.8 + 0.9
    out.update({"manifold/real": real, "manifold/generated": generated,
                "manifold/precision": share_inside(generated, real), "manifold/recall": share_inside(real, generated)})
    save("metrics.safetensors", out)
    for name in ("frechet/distance", "kernel/distance", "swd/pggan", "ms_ssim/64/y", "ms_ssim/16/y",
                 "ms_ssim/160/y", "manifold/precision", "manifold/recall"):
        print(name, out[name])
    print({k: v for k, v in out.items() if k.startswith("classes/") and np.size(v) < 7})


main()
