"""What torchvision's functions make of masks, gray images of class numbers, on Pillow: writes masks.safetensors.

    <case>   the pixels u8[H,W,1]

Sizes change by the nearest pixel, padding has 255. The mask is made by a formula, which masks_test.cc has too.
"""
import json
import os
import struct

import numpy as np
import PIL
import torchvision
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode as Mode

HERE = os.path.dirname(os.path.abspath(__file__))
i = np.arange(13 * 17, dtype=np.uint64)
mask = Image.fromarray((((i * 2654435761) & 0xFFFFFFFF) >> 27).astype(np.uint8).reshape(13, 17))

cases = {}
for h, w in [(7, 9), (26, 34), (20, 5), (1, 1), (13, 40)]:
    cases[f"resize/{h}x{w}"] = F.resize(mask, [h, w], Mode.NEAREST)
for top, left, h, w in [(0, 0, 13, 17), (3, 5, 7, 9), (12, 16, 1, 1), (1, 2, 11, 4)]:
    crop = F.resized_crop(mask, top, left, h, w, [8, 8], Mode.NEAREST)
    cases[f"resized_crop/{top},{left},{h},{w}"] = crop
    cases[f"resized_crop/{top},{left},{h},{w}/mirrored"] = F.hflip(crop)
for mode in ["constant", "edge", "reflect", "symmetric"]:
    cases[f"pad/{mode}"] = F.pad(mask, [2, 3, 4, 1], fill=255, padding_mode=mode)
cases["vflip"] = F.vflip(mask)
cases["center_crop"] = F.center_crop(mask, [5, 6])

header, blobs, at = {"__metadata__": {"torchvision": torchvision.__version__, "pillow": PIL.__version__,
                                      "made_by": "tests/golden/data/masks.py"}}, [], 0
for key, image in cases.items():
    x = np.asarray(image)[:, :, None]
    blobs.append(x.tobytes())
    header[key] = {"dtype": "U8", "shape": list(x.shape), "data_offsets": [at, at + len(blobs[-1])]}
    at += len(blobs[-1])
text = json.dumps(header, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
with open(os.path.join(HERE, "masks.safetensors"), "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
print(len(cases), "tensors,", 8 + len(text) + at, "bytes")
