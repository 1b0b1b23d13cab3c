// Discrete Fourier transforms, as torch.fft. There is no complex dtype: a complex tensor is a real one whose
// last dim has size 2, the real and the imaginary part, as torch.view_as_real gives it. Dims are counted
// without that one, so dim -1 is the last dim of the complex tensor. stack({re, im}, -1) makes a complex tensor.
//
//   Tensor spectrum = fft::rfft(signal);                            // [n] -> [n/2+1,2]
//   Tensor same = fft::irfft(spectrum, {.n = signal.size(0)});
//
// f32 and f64. All are differentiable to any order by transforms. GPUs have no kernel: DeviceError.
#pragma once

#include <cstdint>
#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus::fft {

// The factor of the transform of n points. The inverse transforms have the factors 1 / n, 1 / sqrt(n) and 1.
enum class Norm {
  kBackward,  // 1
  kOrtho,     // 1 / sqrt(n)
  kForward,   // 1 / n
};

struct Options {
  std::optional<int64_t> n;  // points of the transform: x is cut or padded by zeros. irfft: of the result
  int64_t dim = -1;
  Norm norm = Norm::kBackward;
};
// Return y[k] = sum_j x[j] exp(-2 pi i j k / n), and x[j] = 1/n sum_k y[k] exp(2 pi i j k / n), of complex x.
// Shapes: x[...,m,...,2] -> [...,n,...,2]; n is m by default.
// Errors of this and all transforms below: DTypeError unless f32 or f64; ShapeError unless the last dim of a
// complex tensor has size 2; IndexError for a dim that x lacks; ValueError unless 1 <= n <= 2^26, and for a dim
// that is listed twice; DeviceError on a GPU.
Tensor fft(const Tensor& x, const Options& options = {});
Tensor ifft(const Tensor& x, const Options& options = {});

// Returns the first n/2 + 1 points of the transform of a real x. Integers count as the default dtype. The
// others are their complex conjugates.
// Shapes: x[...,m,...] -> [...,n/2+1,...,2]; n is m by default.
Tensor rfft(const Tensor& x, const Options& options = {});
// Returns the inverse of rfft, a real tensor of n points; n is 2 (m - 1) by default. The imaginary parts of
// the first point, and of the last for an even n, have no effect.
// Shapes: x[...,m,...,2] -> [...,n,...].
Tensor irfft(const Tensor& x, const Options& options = {});

struct ManyOptions {
  std::optional<Dims> s;    // points of each transform; -1: as x has
  std::optional<Dims> dim;  // by default the last dims, as many as s has; without s all dims
  Norm norm = Norm::kBackward;
};
// Transform along several dims. fft2 and its like are of the last two dims by default. rfftn and rfft2 give
// n/2 + 1 points of the last listed dim.
// Errors: also ShapeError when s and dim have different lengths.
Tensor fftn(const Tensor& x, const ManyOptions& options = {});
Tensor ifftn(const Tensor& x, const ManyOptions& options = {});
Tensor rfftn(const Tensor& x, const ManyOptions& options = {});
Tensor irfftn(const Tensor& x, const ManyOptions& options = {});
Tensor fft2(const Tensor& x, const ManyOptions& options = {});
Tensor ifft2(const Tensor& x, const ManyOptions& options = {});
Tensor rfft2(const Tensor& x, const ManyOptions& options = {});
Tensor irfft2(const Tensor& x, const ManyOptions& options = {});

// Return the frequencies of the n points of fft, [0, 1, ..., -2, -1] / (d n), and of the points of rfft.
// Errors: ValueError unless n >= 1.
Tensor fftfreq(int64_t n, double d = 1, TensorOptions options = {});
Tensor rfftfreq(int64_t n, double d = 1, TensorOptions options = {});

// Moves the frequency 0 to the middle of each of the dims (default: all), and back. Dims are those of the real
// tensor x: for the last dim of a complex tensor give -2.
// Errors: IndexError for a dim that x lacks.
Tensor fftshift(const Tensor& x, const std::optional<Dims>& dims = {});
Tensor ifftshift(const Tensor& x, const std::optional<Dims>& dims = {});

}  // namespace gradus::fft
