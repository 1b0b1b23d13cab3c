// Random convolutions and matrix products in all dtypes and layouts, checked against direct sums in f64.
//
// Values are odd multiples of 1/4 below 2. Hence all sums of fewer than 2^24 / 49 products are exact in f32,
// in any order. A result is wrong unless it equals the sum, rounded once to its dtype.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::kerneltest {

// One random problem: a function of the seed alone.
class ConvCase {
 public:
  explicit ConvCase(uint64_t seed);
  // The problem's op, dtype, shapes and options, in one line.
  std::string text() const { return text_; }
  // Runs a convolution and its gradients, or a matrix product. Returns the differences, or "".
  std::string wrong() const;

 private:
  uint64_t seed_;
  std::string text_;
};

}  // namespace gradus::kerneltest
