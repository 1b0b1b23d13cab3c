"""Writes images/, small JPEG and PNG files of every kind, and images.txt, what Pillow makes of them.

    python3 make_images.py        # made with Pillow 9.4, libjpeg-turbo 2.1.5 (and its cjpeg), numpy 1.24

A line of images.txt is: file, mode (rgb, gray, as_is), scale (1/scale by Pillow's draft), height, width,
channels, CRC-32 of the upright pixels. Of 16-bit gray the upper 8 bits are expected, as Pillow has them for
other 16-bit images; its own conversion of these saturates.
"""
import io
import pathlib
import struct
import subprocess
import zlib

import numpy as np
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent
IMAGES = HERE / "images"
HEIGHT, WIDTH = 21, 37


def pattern(channels, top=255):
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = [np.sin(x / (3 + k) + k) + np.cos(y / (4 - k / 2)) + 2 for k in range(channels)]
    return (np.stack(waves, -1) / 4 * top).astype(np.uint16 if top > 255 else np.uint8)


# ---- JPEG ----

ORIENTATION = 0x0112


def exif(orientation, big_endian=False):
    order = ">" if big_endian else "<"
    entry = struct.pack(order + "HHIHH", ORIENTATION, 3, 1, orientation, 0)
    head = (b"MM" if big_endian else b"II") + struct.pack(order + "HI", 42, 8)
    return head + struct.pack(order + "H", 1) + entry + struct.pack(order + "I", 0)


def cjpeg(array, *options):
    ppm = b"P6 %d %d 255\n" % (array.shape[1], array.shape[0]) + array.tobytes()
    return subprocess.run(["cjpeg", "-quality", "80", *options], input=ppm, capture_output=True, check=True).stdout


def pillow(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80, **options)
    return out.getvalue()


def without_last_scans(data, count):
    """The first scans of a progressive file: details are missing, and blocks are smoothed by their neighbors."""
    end = data.index(b"\xff\xda")
    for _ in range(count):
        end = data.index(b"\xff\xc4", end + 2)  # the tables before the next scan
    return data[:end] + b"\xff\xd9"


def jpegs():
    rgb = pattern(3)
    image = Image.fromarray(rgb)
    for name, factors in [("444", "1x1"), ("422", "2x1"), ("420", "2x2"), ("411", "4x1"), ("440", "1x2"), ("410", "4x2")]:
        yield f"ycc_{name}.jpg", cjpeg(rgb, "-sample", factors)
    yield "progressive.jpg", cjpeg(rgb, "-sample", "2x2", "-progressive")
    yield "arithmetic.jpg", cjpeg(rgb, "-sample", "2x2", "-arithmetic")
    yield "restarts.jpg", cjpeg(rgb, "-sample", "2x1", "-restart", "1B")
    yield "rgb.jpg", cjpeg(rgb, "-rgb")
    yield "gray.jpg", pillow(image.convert("L"))
    yield "gray_progressive.jpg", pillow(image.convert("L"), progressive=True)
    yield "gray_first_scans.jpg", without_last_scans(pillow(image.convert("L"), progressive=True), 1)
    yield "first_scans.jpg", without_last_scans(cjpeg(rgb, "-sample", "2x2", "-progressive"), 2)
    cmyk = pillow(Image.fromarray(pattern(4), "CMYK"))
    yield "cmyk.jpg", cmyk
    adobe = cmyk.index(b"Adobe")
    yield "ycck.jpg", cmyk[:adobe + 11] + b"\2" + cmyk[adobe + 12:]  # the same data, said to be YCCK
    small = image.crop((0, 0, 19, 10))
    for value in range(1, 9):
        header = b"Exif\0\0" + exif(value, big_endian=value % 2 == 0)
        yield f"exif_{value}.jpg", pillow(small, exif=header, subsampling=2)


# ---- PNG ----


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def rows(samples, depth):
    """samples: [height, width, channels] -> filtered rows, as PNG packs them"""
    out = b""
    for number, row in enumerate(samples.reshape(samples.shape[0], -1)):
        if depth == 16:
            packed = row.astype(">u2").tobytes()
        elif depth == 8:
            packed = row.astype(np.uint8).tobytes()
        else:
            bits = ((row[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8)
            packed = np.packbits(bits.reshape(-1)).tobytes()
        if number % 2 == 0 or depth < 8:
            out += b"\0" + packed  # no filter
        else:
            step = samples.shape[2] * depth // 8
            bytes_ = np.frombuffer(packed, np.uint8).astype(int)
            left = np.concatenate([np.zeros(step, int), bytes_[:-step]])
            out += b"\1" + (bytes_ - left).astype(np.uint8).tobytes()
    return out


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(samples, depth, color_type, palette=None, before=b"", after=b"", interlaced=False):
    height, width = samples.shape[:2]
    data = b"\x89PNG\r\n\x1a\n"
    data += chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, int(interlaced)))
    if palette is not None:
        data += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    data += before
    if interlaced:
        passes = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        packed = zlib.compress(b"".join(rows(p, depth) for p in passes if p.size))
    else:
        packed = zlib.compress(rows(samples, depth))
    half = len(packed) // 2
    data += chunk(b"IDAT", packed[:half]) + chunk(b"IDAT", packed[half:])
    return data + after + chunk(b"IEND", b"")


def pngs():
    gray, gray_alpha, color, palette_type, color_alpha = 0, 4, 2, 3, 6
    for depth in (1, 2, 4, 8, 16):
        yield f"gray_{depth}.png", png(pattern(1, 2**depth - 1), depth, gray)
    for depth in (8, 16):
        yield f"gray_alpha_{depth}.png", png(pattern(2, 2**depth - 1), depth, gray_alpha)
        yield f"rgb_{depth}.png", png(pattern(3, 2**depth - 1), depth, color)
        yield f"rgba_{depth}.png", png(pattern(4, 2**depth - 1), depth, color_alpha)
    for depth in (1, 2, 4, 8):
        count = min(2**depth, 200)
        palette = np.stack([np.arange(count) * 255 // (count - 1), np.arange(count)[::-1], np.arange(count) * 7 % 256], -1)
        samples = pattern(1, count - 1)
        yield f"palette_{depth}.png", png(samples, depth, palette_type, palette)
        if depth == 4:
            clear = chunk(b"tRNS", bytes(range(0, 160, 10)))
            yield "palette_clear.png", png(samples, depth, palette_type, palette, before=clear)
            yield "palette_interlaced.png", png(samples, depth, palette_type, palette, interlaced=True)
    yield "rgb_clear.png", png(pattern(3), 8, color, before=chunk(b"tRNS", struct.pack(">HHH", *map(int, pattern(3)[0, 0]))))
    yield "gray_clear.png", png(pattern(1), 8, gray, before=chunk(b"tRNS", struct.pack(">H", int(pattern(1)[0, 0, 0]))))
    yield "rgb_interlaced.png", png(pattern(3), 8, color, interlaced=True)
    yield "gray_1_interlaced.png", png(pattern(1, 1), 1, gray, interlaced=True)
    yield "gray_16_interlaced.png", png(pattern(1, 65535), 16, gray, interlaced=True)
    small = pattern(3)[:9, :14]
    yield "exif_before.png", png(small, 8, color, before=chunk(b"eXIf", exif(6)))
    yield "exif_after.png", png(small, 8, color, after=chunk(b"eXIf", exif(3, big_endian=True)))


# ---- what is expected ----


def upright(image):
    return ImageOps.exif_transpose(image)


def expected(name):
    path = IMAGES / name
    is_gray16 = name.startswith("gray_16")
    is_gray = name.startswith("gray")
    for mode in ("rgb", "gray", "as_is"):
        image = Image.open(path)
        if is_gray16:
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        image = upright(image)
        image = image.convert("L" if mode == "gray" or (mode == "as_is" and is_gray) else "RGB")
        yield mode, 1, np.asarray(image)
    if not name.endswith(".jpg"):
        return
    for scale in (2, 4, 8):
        image = Image.open(path)
        size = (image.size[0] // scale, image.size[1] // scale)
        if min(size) < 1:
            continue
        tag = image.getexif().get(ORIENTATION, 1)
        image.draft(None, size)
        image = image.convert("RGB")
        image.getexif()[ORIENTATION] = tag
        yield "rgb", scale, np.asarray(upright(image))


def main():
    IMAGES.mkdir(exist_ok=True)
    lines = []
    for name, data in [*jpegs(), *pngs()]:
        (IMAGES / name).write_bytes(data)
        for mode, scale, pixels in expected(name):
            channels = pixels.shape[2] if pixels.ndim == 3 else 1
            crc = zlib.crc32(pixels.tobytes())
            lines.append(f"{name} {mode} {scale} {pixels.shape[0]} {pixels.shape[1]} {channels} {crc}\n")
    (HERE / "images.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
