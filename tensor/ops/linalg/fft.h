// Raw discrete Fourier transform along one dim, without autograd. Users call gradus/autograd/ops/linalg/fft.h.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

inline constexpr int64_t kMaxDftLength = 1 << 26;  // kissfft has int indices up to 16 n

// Returns y[k] = scale * sum_j x[j] exp(-2 pi i j k / n), or with exp(+...) if `inverse`, along `dim` of a
// complex tensor: the last dim has the real and the imaginary part.
// Shapes: x[...,n,...,2] -> the same.
// Errors: DTypeError unless f32 or f64; ValueError unless n <= kMaxDftLength; ShapeError unless the last dim has size 2; IndexError for the last dim.
Tensor dft(const Tensor& x, int64_t dim, bool inverse, double scale);

// f32 or f64, row-major: x and y are complex[outer,n,inner], with n >= 1.
extern KernelSlot<void(const Tensor& y, const Tensor& x, bool inverse, double scale)> dft_kernel;

}  // namespace gradus::raw
