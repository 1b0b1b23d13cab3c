// Which of oneDNN's implementations compute some convolutions or products wrongly, read or write beyond their
// memory, or end the program: found by ./run fuzz_conv, listed in docs/kernels.md.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <string_view>

#include "gradus/tensor/ops/conv.h"

namespace gradus::onednn {

enum class Pass { kForward, kInputGrad, kWeightGrad };

// Whether the implementation of this name must not serve the convolution of x by w, or that gradient of it.
bool errs(std::string_view implementation, Pass pass, const Shape& x, const Shape& w,
          const raw::ConvGeometry& g);

// Whether it must not serve a product over so many inner elements.
bool errs_in_matmul(std::string_view implementation, int64_t inner);

// Goes on to the first implementation for which errs(name) does not hold. Errors: dnnl::error, unimplemented,
// where there is none. What `pd` was made of must still be there.
template <class PrimitiveDesc, class Errs>
void pass_over(PrimitiveDesc& pd, const Errs& errs) {
  while (errs(pd.impl_info_str()))
    if (!pd.next_impl()) throw dnnl::error(dnnl_unimplemented, "every implementation is known to err");
}

}  // namespace gradus::onednn
