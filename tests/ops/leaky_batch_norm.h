// batch_norm_leaky_relu of slope 0 against batch_norm and leaky_relu, for any device. Unlike relu, this makes
// -0 of a negative number and NaN of -infinity.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus {

// Expects both to have the same bits, in results, gradients and running statistics.
inline void expect_slope_0_as_of_two_ops(Device device) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::nan("");
  const auto bits = [](const Tensor& t) {
    const Tensor here = raw::contiguous(raw::to(t, kCPU));
    return std::string(static_cast<const char*>(here.raw_ptr()), size_t(here.nbytes()));
  };
  for (const DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    const DType wide = t == DType::kF64 ? t : DType::kF32;
    const auto there = [&](const std::vector<double>& v, const Shape& shape, DType dtype) {
      return raw::to(raw::to(tensor(v, shape), dtype), device);
    };
    // Each channel but the last has mean 0.
    const std::vector<double> x = {-1,  -1,  -1,  -1, -1, -1,  //
                                   -0., 0,   0,   0,  0,  0,   //
                                   0,   -0., -0., 0,  0,  0,   //
                                   1,   1,   1,   1,  1,  kInf};
    const std::vector<double> w = {1, -1, 1, 1, 1, 1}, b = {-0., -0., kInf, -kInf, kNaN, 0};
    std::vector<double> dy(x.size());
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = std::vector{1., -1., -0., kInf, kNaN}[i % 5];
    const std::vector<Tensor> inputs = {there(x, {4, 6}, t), there(w, {6}, wide), there(b, {6}, wide)};
    const auto values = [&](bool fused) {
      const Tensor mean = there(w, {6}, wide), var = there(w, {6}, wide);
      const BatchNormFuncOptions options{.training = true};
      auto [y, all] = autograd::value_and_grad(
          [&](const std::vector<Tensor>& v) {
            return fused ? batch_norm_leaky_relu(v[0], 0, v[1], v[2], mean, var, options)
                         : leaky_relu(batch_norm(v[0], v[1], v[2], mean, var, options), 0);
          },
          inputs, there(dy, {4, 6}, t));
      all.insert(all.end(), {y, mean, var});
      return all;
    };
    const std::vector<Tensor> one = values(true), two = values(false);
    ASSERT_EQ(one.size(), 6u);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_EQ(bits(one[i]), bits(two[i])) << name_of(t) << ' ' << i << ": " << raw::to(one[i], kCPU) << '\n'
                                            << raw::to(two[i], kCPU);
    const std::vector<double> y = one[3].to_vector<double>();
    for (const size_t i : {0, 6, 7, 19})
      EXPECT_TRUE(y[i] == 0 && std::signbit(y[i])) << name_of(t) << ' ' << i;
    for (size_t row = 0; row < 4; ++row) {
      EXPECT_EQ(y[6 * row + 2], kInf) << name_of(t);
      for (const size_t column : {3, 4, 5}) EXPECT_TRUE(std::isnan(y[6 * row + column])) << name_of(t);
    }
  }
}

}  // namespace gradus
