// Filters in the layouts that oneDNN's kernels for AVX-512 ask for.
#pragma once

#include "gradus/tensor/cpu/onednn/onednn.h"

namespace gradus::onednn {

// Copies row-major filters into the layout `want` and returns true, or returns false for what is not served:
// other layouts, dtypes and processors. Faster than oneDNN's reorder, on memory that is in no
// cache.
bool copy_filters(const Tensor& w, const Desc& want, const Tensor& to);

}  // namespace gradus::onednn
