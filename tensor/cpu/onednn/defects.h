// Known bugs of oneDNN: implementations that compute some convolutions or matrix products wrongly, access memory
// out of bounds, or crash. Found by tools/fuzz-conv.sh; the table is in defects.cc.
#pragma once

#include <string_view>

#include "gradus/tensor/cpu/onednn/problems.h"

namespace gradus::onednn {

// Returns whether the implementation of this name is known to fail in this pass of a convolution of x with w.
bool has_defect(std::string_view implementation, Pass pass, const Shape& x, const Shape& w,
                const raw::ConvGeometry& g);

// Returns whether the implementation is known to fail for a batch of `batch` products a b on this number of
// threads.
bool has_matmul_defect(std::string_view implementation, const Matrices& a, const Matrices& b, int64_t batch,
                       int threads);

}  // namespace gradus::onednn
