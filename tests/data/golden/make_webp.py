"""Writes webp/, small WebP files, and webp.txt, what Pillow makes of them, in the format of images.txt.

    python3 make_webp.py        # made with Pillow 13.0, libwebp 1.6.0, numpy
"""
import io
import pathlib
import zlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
WEBP = HERE / "webp"
HEIGHT, WIDTH = 21, 37


def pattern(channels):
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = [np.sin(x / (3 + k) + k) + np.cos(y / (4 - k / 2)) + 2 for k in range(channels)]
    return (np.stack(waves, -1) / 4 * 255).astype(np.uint8)


def webp(channels, frames=1, **options):
    images = [Image.fromarray(np.roll(pattern(channels), 5 * k, axis=0)) for k in range(frames)]
    out = io.BytesIO()
    images[0].save(out, "WEBP", save_all=frames > 1, append_images=images[1:], **options)
    return out.getvalue()


def main():
    WEBP.mkdir(exist_ok=True)
    files = {
        "lossy": webp(3, quality=75),
        "lossy_alpha": webp(4, quality=60),
        "lossless": webp(3, lossless=True),
        "lossless_alpha": webp(4, lossless=True, exact=True),
    }
    lines = []
    for name, data in files.items():
        (WEBP / f"{name}.webp").write_bytes(data)
        for mode, convert in (("rgb", "RGB"), ("gray", "L"), ("as_is", "RGB")):
            pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB").convert(convert))
            channels = pixels.shape[2] if pixels.ndim == 3 else 1
            lines.append(f"{name}.webp {mode} 1 {HEIGHT} {WIDTH} {channels} {zlib.crc32(pixels.tobytes())}\n")
    (HERE / "webp.txt").write_text("".join(lines))
    (WEBP / "animation.webp").write_bytes(webp(3, frames=3))


if __name__ == "__main__":
    main()
