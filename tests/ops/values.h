// Helpers for tests of ops: pseudorandom tensors, which depend on shape, dtype and seed alone, and
// comparisons of whole tensors. Expected errors are in support/error.h.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "gradus/tensor/runtime/random.h"
#include "gradus/tensor/tensor.h"
#include "gradus/tests/support/error.h"

namespace gradus {

// Uniform in [-1, 1). dtype: f32, f64, bf16 or f16.
inline Tensor random_tensor(const Shape& shape, DType dtype = DType::kF32, uint64_t seed = 1) {
  Tensor x = empty(shape, {dtype, kCPU});
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto bits = philox(seed, 0, uint64_t(i));
    const double v = 2 * uniform_f64(bits[0], bits[1]) - 1;
    switch (dtype) {
      case DType::kF64:
        x.ptr<double>()[i] = v;
        break;
      case DType::kBF16:
        x.ptr<bf16>()[i] = bf16(float(v));
        break;
      case DType::kF16:
        x.ptr<f16>()[i] = f16(float(v));
        break;
      default:
        x.ptr<float>()[i] = float(v);
    }
  }
  return x;
}

// Expects |got - want| <= tolerance * max(1, |want|) for each element.
inline void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * std::max(1.0, std::abs(b[i])))
        << "element " << i << " of " << describe(got);
}

inline double sum_of_products(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double s = 0;
  for (size_t i = 0; i < x.size(); ++i) s += x[i] * y[i];
  return s;
}

// Expects a 16-bit result that was computed in f32 and rounded once: half a unit in the last place of the
// exact value, and `terms` roundings in f32 of partial sums that stay below `terms` (for inputs below 1).
// `smallest` is half the smallest f16 subnormal.
inline void expect_rounded_once(const Tensor& got, const Tensor& exact, double terms) {
  ASSERT_EQ(got.shape(), exact.shape());
  const double relative = got.dtype() == DType::kBF16 ? 0x1p-8 : 0x1p-11, smallest = 0x1p-25;
  const auto a = got.to_vector<double>(), b = exact.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    const double slack = terms * terms * 0x1p-24;
    ASSERT_NEAR(a[i], b[i], relative * (std::abs(b[i]) + slack) + slack + smallest)
        << "element " << i << " of " << describe(got);
  }
}

}  // namespace gradus
