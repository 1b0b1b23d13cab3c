// Golden values: PyTorch's results in files that make_golden.py and the scripts beside the tests wrote.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradus/io/safetensors.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::golden {

inline io::SafetensorsFile load(const std::string& name) {
  return io::load_safetensors("tests/golden/" + name + ".safetensors");
}

// Returns scale * u for n pseudorandom u in [-1, 1), with which make_golden.py fills weights.
inline std::vector<double> formula(int64_t n, uint64_t key, double scale) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) {
    v.push_back((double((uint64_t(i) * 2654435761u + 40503u * key) & 0xFFFFFFFFu) / 2147483648.0 - 1) *
                scale);
  }
  return v;
}

// Returns the largest |element| of x, at least `least`.
inline double magnitude(const Tensor& x, double least = 1) {
  for (double v : x.to_vector<double>()) least = std::max(least, std::abs(v));
  return least;
}

// Expects |given - expected| <= tolerance * max(1, |expected|max), element by element.
inline void expect_near(const Tensor& given, const Tensor& expected, double tolerance,
                        const std::string& what) {
  ASSERT_TRUE(given.defined()) << what << " is undefined";
  ASSERT_EQ(to_string(given.shape()), to_string(expected.shape())) << what;
  const std::vector<double> g = given.to_vector<double>(), e = expected.to_vector<double>();
  const double allowed = tolerance * magnitude(expected);
  for (size_t i = 0; i < g.size(); ++i) {
    ASSERT_LE(std::abs(g[i] - e[i]), allowed) << what << " at " << i << ": " << g[i] << ", expected " << e[i];
  }
}

}  // namespace gradus::golden
