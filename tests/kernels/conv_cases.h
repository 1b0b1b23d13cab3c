// Random convolutions and matrix products on the CPU, in f64, f32, f16 and bf16 and several layouts, checked
// against direct sums in f64.
//
// Values are +-1/4, +-3/4, +-5/4 or +-7/4, and mostly 0 in some output gradients. Hence all sums of fewer
// than 2^24 / 49 products are exact in f32, in any order. A result is wrong unless it equals the sum, rounded
// once to its dtype.
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
  // Runs a convolution and its gradients, or a matrix product. Returns the differences, or "". Sets the
  // number of threads to the case's, and leaves it so.
  std::string wrong() const;

 private:
  uint64_t seed_;
  std::string text_;
};

}  // namespace gradus::kerneltest
