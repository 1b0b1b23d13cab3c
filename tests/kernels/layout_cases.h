// Random products and convolutions, and their gradients, on operands of random strides, compared with the
// same op on contiguous copies of the operands. Layouts: dims in any order, with gaps, slices whose steps
// interleave dims, windows that overlap, and strides of 0.
//
// Values are odd multiples of 1/4 below 2, so sums are exact and both results have the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::kerneltest {

// One random case: a function of the seed alone.
class LayoutCase {
 public:
  explicit LayoutCase(uint64_t seed);
  // Op, dtype and the operands' shapes and strides, in one line.
  std::string text() const;
  // Runs the case. Returns a text of the differences, empty if none.
  std::string wrong() const;

  struct Operand {
    Shape shape;
    Strides strides;
    int64_t offset, room;  // of the first element, and the storage's size; in elements
  };

 private:
  std::string op_;
  std::function<Tensor(const std::vector<Tensor>&)> run_;
  std::vector<Operand> operands_;
  DType dtype_ = DType::kF32;
  int threads_ = 1;
  uint64_t seed_;
};

}  // namespace gradus::kerneltest
