// Fourier transforms: lengths with large prime factors against the definition, first and second order
// gradients against differences, inverses, other devices, and errors. tests/golden/ops compares with PyTorch.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using fft::Norm;
using Tensors = std::vector<Tensor>;

Tensor numbers(const Shape& shape, DType dtype = DType::kF64) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.product(); ++i) v.push_back(std::sin(double(i * i % 1009)));
  return raw::to(tensor(v, shape), dtype);
}
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
double distance(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item<double>(); }

TEST(Fft, OfAnyLengthIsTheDefinition) {
  for (int64_t n : {61, 67, 128, 134, 509, 1024, 1018, 2 * 3 * 5 * 7 * 11}) {
    const Tensor x = numbers({n, 2}), y = fft::fft(x);
    const std::vector<double> in = values(x), out = values(y);
    double error = 0;
    for (int64_t k = 0; k < n; ++k) {
      std::complex<double> sum;
      for (int64_t j = 0; j < n; ++j)
        sum += std::complex(in[size_t(2 * j)], in[size_t(2 * j + 1)]) *
               std::polar(1.0, -2 * std::numbers::pi * double(j * k % n) / double(n));
      error = std::max(error, std::abs(sum - std::complex(out[size_t(2 * k)], out[size_t(2 * k + 1)])));
    }
    EXPECT_LT(error, 1e-11 * std::sqrt(double(n))) << n;
    EXPECT_LT(distance(fft::ifft(y), x), 1e-13) << n;
    EXPECT_LT(distance(fft::fft(raw::to(x, DType::kF32)), raw::to(y, DType::kF32)), 1e-4) << n;
  }
}

TEST(Fft, OfManyPointsIsInverted) {
  for (int64_t n : {1 << 16, 65537, 100003}) {
    const Tensor x = numbers({n});
    EXPECT_LT(distance(fft::irfft(fft::rfft(x), {.n = n}), x), 1e-12) << n;
    const Tensor narrow = raw::to(x, DType::kF32);
    EXPECT_LT(distance(fft::irfft(fft::rfft(narrow), {.n = n}), narrow), 1e-5) << n;
  }
}

TEST(Fft, HasGradientsOfAllOrders) {
  const std::vector<std::pair<const char*, autograd::TensorFunction>> functions = {
      {"fft", [](const Tensors& x) { return fft::fft(x[0], {.n = 5, .dim = 0}); }},
      {"ifft", [](const Tensors& x) { return fft::ifft(x[0], {.norm = Norm::kOrtho}); }},
      {"rfft", [](const Tensors& x) { return square(fft::rfft(x[0])); }},
      {"irfft", [](const Tensors& x) { return square(fft::irfft(x[0], {.n = 5})); }},
      {"fftn", [](const Tensors& x) { return square(fft::fftn(x[0])); }},
      {"rfft2", [](const Tensors& x) { return square(fft::rfft2(x[0])); }},
      {"irfftn", [](const Tensors& x) { return square(fft::irfftn(x[0], {.norm = Norm::kForward})); }},
      {"fftshift", [](const Tensors& x) { return square(fft::fftshift(x[0])); }},
  };
  for (const auto& [name, f] : functions) {
    const Tensor x = numbers({3, 4, 2});
    const auto check = autograd::gradcheck(f, {x});
    EXPECT_TRUE(check) << name << ": " << check.message;
    const auto again = autograd::gradgradcheck(f, {x});
    EXPECT_TRUE(again) << name << ": " << again.message;
  }
}

TEST(Fft, IsTheSameOnAnyNumberOfThreadsLayoutAndDevice) {
  const auto run = [](const Tensor& x) { return values(fft::fftn(x)); };
  const Tensor x = numbers({30, 40, 37, 2}, DType::kF32);
  set_num_threads(1);
  const std::vector<double> one = run(x);
  set_num_threads(3);
  EXPECT_EQ(run(x), one);
  EXPECT_EQ(run(transpose(contiguous(transpose(x, 0, 2)), 0, 2)), one);
  EXPECT_EQ(run(to(x, Device{DeviceType::kCPU, 1})), one);
  const Tensor meta = empty({4, 6, 2}, {.device = {DeviceType::kMeta}});
  EXPECT_EQ(to_string(fft::irfft2(meta).shape()), "[4,10]");
}

TEST(Fft, OfIntegersIsOfTheDefaultDtype) {
  const Tensor y = fft::rfft(tensor({1, 2, 3, 4}));
  EXPECT_EQ(y.dtype(), DType::kF32);
  EXPECT_EQ(values(y), (std::vector<double>{10, 0, -2, 2, -2, 0}));
}

TEST(Fft, OfNoLines) {
  EXPECT_EQ(to_string(fft::fft(numbers({0, 4, 2})).shape()), "[0,4,2]");
  EXPECT_EQ(values(fft::fft(numbers({0, 2}), {.n = 2})), (std::vector<double>{0, 0, 0, 0}));
}

TEST(Fft, ThrowsForArgumentsThatDoNotFit) {
  const Tensor x = numbers({3, 4, 2});
  EXPECT_ERROR(ShapeError, fft::fft(numbers({3, 4})), "[fft]", "[...,2]", "f64[3,4]");
  EXPECT_ERROR(ShapeError, fft::irfftn(numbers({2})), "[irfftn]", "[...,2]");
  EXPECT_ERROR(ShapeError, fft::rfft(scalar(1)), "[rfft]");
  EXPECT_ERROR(DTypeError, fft::fft(raw::to(x, DType::kF16)), "[fft]", "f32 or f64", "f16");
  EXPECT_ERROR(DTypeError, fft::ifft(raw::to(x, DType::kI64)), "[ifft]", "i64");
  EXPECT_ERROR(IndexError, fft::fft(x, {.dim = 2}), "[fft]");
  EXPECT_ERROR(IndexError, fft::fftn(x, {.dim = Dims{0, -3}}), "[fftn]");
  EXPECT_ERROR(IndexError, fft::fftshift(x, Dims{3}), "[fftshift]");
  EXPECT_ERROR(ValueError, fft::fft(x, {.n = 0}), "[fft]", "got 0");
  EXPECT_ERROR(ValueError, fft::fft(numbers({0, 2})), "[fft]", "got 0");
  EXPECT_ERROR(ValueError, fft::irfft(numbers({3, 1, 2})), "[irfft]", "got 0");
  EXPECT_ERROR(ValueError, fft::ifft(x, {.n = (int64_t(1) << 26) + 1}), "[ifft]", "67108865");
  EXPECT_ERROR(ValueError, fft::irfft(x, {.n = INT64_MAX}), "[irfft]");
  EXPECT_ERROR(ValueError, fft::fft2(x, {.dim = Dims{1, -1}}), "[fft2]", "twice");
  EXPECT_ERROR(ShapeError, fft::fft2(x, {.s = Dims{1}}), "[fft2]", "[1]");
  EXPECT_ERROR(ShapeError, fft::rfftn(x, {.s = Dims{1, 2, 3, 4}}), "[rfftn]", "at most 3");
  EXPECT_ERROR(ValueError, fft::fftfreq(0), "[fftfreq]");
  EXPECT_ERROR(ValueError, fft::rfftfreq(-1), "[rfftfreq]");
  EXPECT_ERROR(StateError, fft::rfft(Tensor()), "[rfft]");
  // Shapes of more elements than memory has bytes are refused before they are allocated.
  EXPECT_THROW(fft::fftn(expand(numbers({1, 1, 1, 2}), {1 << 20, 1 << 20, 1, 2}), {.s = Dims{1 << 26}}),
               Error);
}

}  // namespace
}  // namespace gradus
