#!/usr/bin/env python3
"""Fourier transforms against PyTorch: python3 tests/golden/ops/fft.py. What the file holds: golden.py.

Complex tensors are real ones [...,2], by view_as_real and view_as_complex.
"""
import torch

from golden import Family

f = Family("fft")
NORMS = ("backward", "ortho", "forward")


def of_complex(op, to_real=False, **options):
    def run(x):
        y = getattr(torch.fft, op)(torch.view_as_complex(x), **options)
        return y if to_real else torch.view_as_real(y)
    return run


def of_real(op, **options):
    return lambda x: torch.view_as_real(getattr(torch.fft, op)(x, **options))


for n in (1, 2, 3, 4, 8, 12, 15, 67, 71):
    for op in ("fft", "ifft"):
        f.case(f"{op}/{n}", of_complex(op), f.rand(2, n, 2))
    f.case(f"rfft/{n}", of_real("rfft"), f.rand(2, n))
    f.case(f"irfft/{n}", of_complex("irfft", True, n=n), f.rand(2, n // 2 + 1, 2))
for norm in NORMS:
    for dim in (0, 1, -1):
        for op in ("fft", "ifft"):
            f.case(f"{op}/{norm} {dim}", of_complex(op, norm=norm, dim=dim), f.rand(4, 5, 3, 2))
        f.case(f"rfft/{norm} {dim}", of_real("rfft", norm=norm, dim=dim), f.rand(4, 5, 3))
        f.case(f"irfft/{norm} {dim}", of_complex("irfft", True, norm=norm, dim=dim), f.rand(4, 5, 3, 2))
for n in (3, 9):  # cut and padded
    for op in ("fft", "ifft"):
        f.case(f"{op}/n {n}", of_complex(op, n=n), f.rand(2, 6, 2))
    f.case(f"rfft/n {n}", of_real("rfft", n=n), f.rand(2, 6))
    f.case(f"irfft/n {n}", of_complex("irfft", True, n=n), f.rand(2, 3, 2))
for kind in ("2", "n"):
    for op in ("fft", "ifft"):
        f.case(f"{op}{kind}/default", of_complex(op + kind), f.rand(2, 3, 4, 2))
        f.case(f"{op}{kind}/options", of_complex(op + kind, s=(5, 2), dim=(0, 2), norm="ortho"), f.rand(2, 3, 4, 2))
    f.case(f"rfft{kind}/default", of_real("rfft" + kind), f.rand(2, 3, 4))
    f.case(f"rfft{kind}/options", of_real("rfft" + kind, s=(5, 3), dim=(2, 0), norm="ortho"), f.rand(2, 3, 4))
    f.case(f"irfft{kind}/default", of_complex("irfft" + kind, True), f.rand(2, 3, 4, 2))
    f.case(f"irfft{kind}/options", of_complex("irfft" + kind, True, s=(5, 3), dim=(2, 0), norm="forward"), f.rand(2, 3, 4, 2))
f.case("fftn/sizes alone", of_complex("fftn", s=(3, 6)), f.rand(2, 3, 4, 2))
for n in (1, 4, 5):
    f.case(f"fftfreq/{n}", lambda x: torch.fft.fftfreq(n, 0.5, dtype=x.dtype) + x, f.rand(1))
    f.case(f"rfftfreq/{n}", lambda x: torch.fft.rfftfreq(n, 0.5, dtype=x.dtype) + x, f.rand(1))
f.case("fftshift/all", torch.fft.fftshift, f.rand(3, 4))
f.case("fftshift/dims", lambda x: torch.fft.fftshift(x, (0, -1)), f.rand(3, 4, 5))
f.case("ifftshift/all", torch.fft.ifftshift, f.rand(3, 4))
f.case("ifftshift/dims", lambda x: torch.fft.ifftshift(x, (0, -1)), f.rand(3, 4, 5))
f.save()
