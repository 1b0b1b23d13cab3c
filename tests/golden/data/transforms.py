"""What torchvision's transforms, on Pillow's images, give: writes transforms.safetensors.

    <case>       the pixels u8[H,W,C] of a small result, or the floats f32[C,H,W]
    <case>.crc   i64[]: the CRC-32 of the bytes of a large one, u8[H,W,C]
    crops        i64[400,11]: random crops: size and key of the photo, box, size and filter of the result, its CRC-32

Made with the newest Pillow, whose version the file names. Inputs are made by formulas (photo below), which transforms_test.cc has too.
"""
import json
import os
import struct
import zlib

import numpy as np
import PIL
import torch
import torchvision
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode as Mode

HERE = os.path.dirname(os.path.abspath(__file__))
tensors = {}


def photo(h, w, c, key=0):
    """Noise on a slope: every rounding is met, and results are not all alike."""
    i = np.arange(h * w * c, dtype=np.uint64)
    noise = ((i * 2654435761 + 40503 * key) & 0xFFFFFFFF) >> 24
    y = (i // (w * c)) * 255 // h
    v = ((noise + y) // 2).astype(np.uint8).reshape(h, w, c)
    return Image.fromarray(v[:, :, 0] if c == 1 else v)


def put(name, image, small=True):
    x = np.asarray(image)
    if x.dtype == np.uint8 and x.ndim == 2:
        x = x[:, :, None]
    x = np.ascontiguousarray(x)
    assert name not in tensors, name
    tensors[name if small else name + ".crc"] = x if small else np.array(zlib.crc32(x.tobytes()), dtype=np.int64)


MODES = {"nearest": Mode.NEAREST, "box": Mode.BOX, "bilinear": Mode.BILINEAR, "hamming": Mode.HAMMING,
         "bicubic": Mode.BICUBIC, "lanczos": Mode.LANCZOS}
rgb, gray = photo(13, 17, 3), photo(13, 17, 1, 1)

for name, mode in MODES.items():
    for h, w in [(7, 9), (13, 9), (7, 17), (20, 31), (1, 1), (13, 40)]:
        put(f"resize/{name}/{h}x{w}", F.resize(rgb, [h, w], mode))
    put(f"resize/{name}/gray", F.resize(gray, [8, 21], mode))
    put(f"resize/{name}/large", F.resize(photo(375, 500, 3, 2), [224, 224], mode), small=False)
    put(f"resize/{name}/huge", F.resize(photo(1201, 1603, 3, 3), [256, 341], mode), small=False)
    put(f"resize/{name}/up", F.resize(photo(31, 47, 3, 4), [224, 301], mode), small=False)
    put(f"resize/{name}/tall", F.resize(photo(300, 2, 3, 5), [10, 7], mode))

for h, w in [(375, 500), (500, 375), (333, 499), (256, 300), (17, 400)]:
    for size, max_size in [(256, None), (224, 300), (33, None)]:
        image = F.resize(photo(h, w, 3), size, max_size=max_size)
        tensors[f"shape/{h}x{w}/{size}/{max_size}"] = np.array([image.height, image.width], dtype=np.int64)
        put(f"shorter/{h}x{w}/{size}/{max_size}", image, small=False)

put("eval", F.center_crop(F.resize(photo(375, 500, 3, 6), 256), [224, 224]), small=False)
for h, w in [(5, 6), (6, 5), (13, 17), (14, 18), (21, 20), (4, 30)]:
    put(f"center_crop/{h}x{w}", F.center_crop(rgb, [h, w]))
for i, j, h, w in [(0, 0, 13, 17), (3, 5, 7, 9), (12, 16, 1, 1)]:
    put(f"resized_crop/{i},{j},{h},{w}", F.resized_crop(rgb, i, j, h, w, [8, 8]))
    put(f"resized_crop/{i},{j},{h},{w}/mirrored", F.hflip(F.resized_crop(rgb, i, j, h, w, [8, 8], Mode.BICUBIC)))

# Boxes of all sizes and aspect ratios, as RandomResizedCrop draws them: either pass comes first in many.
rng, rows = np.random.default_rng(8), []
for n in range(400):
    h, w, filter = int(rng.integers(2, 300)), int(rng.integers(2, 300)), int(rng.integers(1, len(MODES)))
    box_h, box_w = int(rng.integers(1, h + 1)), int(rng.integers(1, w + 1))
    top, left = int(rng.integers(0, h - box_h + 1)), int(rng.integers(0, w - box_w + 1))
    size = [int(rng.integers(1, 65)), int(rng.integers(1, 65))] if n % 2 else [32, 32]
    result = F.resized_crop(photo(h, w, 3, n), top, left, box_h, box_w, size, list(MODES.values())[filter])
    rows.append([h, w, n, top, left, box_h, box_w, *size, filter, zlib.crc32(np.asarray(result).tobytes())])
tensors["crops"] = np.array(rows, dtype=np.int64)

put("hflip", F.hflip(rgb))
put("vflip", F.vflip(rgb))
put("mirror_then_resize", F.resize(F.hflip(rgb), [6, 7]))
for mode in ["constant", "edge", "reflect", "symmetric"]:
    put(f"pad/{mode}", F.pad(rgb, [2, 3, 4, 1], fill=7, padding_mode=mode))
    put(f"pad/{mode}/gray", F.pad(gray, [2, 3], fill=9, padding_mode=mode))
    put(f"pad/{mode}/wide", F.pad(photo(3, 4, 3), [5, 4, 3, 2], padding_mode=mode) if mode != "reflect"
        else F.pad(photo(3, 4, 3), [3, 2, 3, 2], padding_mode=mode))
put("pad/color", F.pad(rgb, [1], fill=(1, 2, 3)))

# All combinations of 0, 5, 10, ..., 255 in three channels; as a list of pixels.
steps = np.arange(0, 256, 5, dtype=np.uint8)
cube = Image.fromarray(np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), -1).reshape(52, -1, 3))
large = photo(120, 160, 3, 7)
put("grayscale", F.to_grayscale(cube, 1), small=False)
put("grayscale3", F.to_grayscale(large, 3), small=False)
for factor in [0.0, 0.3, 0.61, 1.0, 1.37, 2.5]:
    put(f"brightness/{factor}", F.adjust_brightness(large, factor), small=False)
    put(f"contrast/{factor}", F.adjust_contrast(large, factor), small=False)
    put(f"saturation/{factor}", F.adjust_saturation(cube, factor), small=False)
    put(f"contrast/{factor}/gray", F.adjust_contrast(gray, factor))
for shift in [-0.5, -0.13, -0.01, 0.0, 0.05, 0.33, 0.5]:
    put(f"hue/{shift}", F.adjust_hue(cube, shift), small=False)

put("to_tensor", F.to_tensor(rgb).numpy())
put("to_tensor/gray", F.to_tensor(gray).numpy())
put("normalize", F.normalize(F.to_tensor(rgb), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).numpy())
put("normalize/one", F.normalize(F.to_tensor(gray), [0.1307], [0.3081]).numpy())

names = {"uint8": "U8", "int64": "I64", "float32": "F32"}
header, blobs, at = {"__metadata__": {"torchvision": torchvision.__version__, "pillow": PIL.__version__,
                                      "made_by": "tests/golden/data/transforms.py"}}, [], 0
for key, x in sorted(tensors.items(), key=lambda item: -item[1].itemsize):
    blobs.append(x.tobytes())
    header[key] = {"dtype": names[str(x.dtype)], "shape": list(x.shape), "data_offsets": [at, at + len(blobs[-1])]}
    at += len(blobs[-1])
text = json.dumps(header, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
with open(os.path.join(HERE, "transforms.safetensors"), "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
print(len(tensors), "tensors,", 8 + len(text) + at, "bytes")
