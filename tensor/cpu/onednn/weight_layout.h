// A fast reorder of convolution filters into the blocked layouts of oneDNN's AVX-512 kernels.
#pragma once

#include "gradus/tensor/cpu/onednn/onednn.h"

namespace gradus::onednn {

// Copies the row-major filters w into `to` in `layout` and returns true. Returns false, without a copy,
// if the layout, dtype or processor is not supported. Faster than oneDNN's reorder if w is not in a cache.
bool copy_filters(const Tensor& w, const Desc& layout, const Tensor& to);

}  // namespace gradus::onednn
