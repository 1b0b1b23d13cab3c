// Raw cat and stack. The inverse ops are views: gradus/tensor/ops/view.h.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Return xs concatenated along dim `dim`, or stacked along a new dim `dim`. Mixed dtypes are promoted. The result
// is channels-last if all of xs are, else row-major.
// Errors: ValueError for an empty list; ShapeError, DeviceError.
Tensor cat(const std::vector<Tensor>& xs, int64_t dim);
Tensor stack(const std::vector<Tensor>& xs, int64_t dim);

}  // namespace gradus::raw
