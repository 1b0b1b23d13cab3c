// Filters in the layouts that oneDNN's kernels for AVX-512 ask for.
#pragma once

#include "gradus/tensor/cpu/onednn/onednn.h"

namespace gradus::onednn {

// Copies row-major filters into the layout `want` and returns true. Returns false for layouts, dtypes and
// processors that it does not serve. On memory that is in no cache it is faster than oneDNN's reorder.
bool copy_filters(const Tensor& w, const Desc& want, const Tensor& to);

}  // namespace gradus::onednn
