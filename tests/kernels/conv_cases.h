// Random convolutions and matrix products, checked against sums in f64.
//
// Values are odd multiples of 1/4 below 2. So all sums of fewer than 2^24 / 49 products are exact in f32, in
// any order. A result is wrong when it is not the sum, rounded once to its dtype.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::kerneltest {

// One random problem: a function of the seed alone.
class ConvCase {
 public:
  explicit ConvCase(uint64_t seed);
  // What it is, in one line.
  std::string text() const { return text_; }
  // Runs it: a convolution and its gradients, or a matrix product. Returns what is wrong, or nothing.
  std::string wrong() const;

 private:
  uint64_t seed_;
  std::string text_;
};

}  // namespace gradus::kerneltest
