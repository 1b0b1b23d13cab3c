// Which of oneDNN's implementations compute some convolutions or products wrongly, read or write beyond their
// memory, or end the program: found by tools/fuzz-conv.sh, listed in docs/kernels.md.
#pragma once

#include <string_view>

#include "gradus/tensor/cpu/onednn/problems.h"

namespace gradus::onednn {

// Whether the implementation of this name must not serve the convolution of x by w, or that gradient of it.
bool errs(std::string_view implementation, Pass pass, const Shape& x, const Shape& w,
          const raw::ConvGeometry& g);

// Whether it must not serve a batch of so many products a b, by so many threads.
bool errs_in_matmul(std::string_view implementation, const Matrices& a, const Matrices& b, int64_t batch,
                    int threads);

}  // namespace gradus::onednn
