// Raw ops that join tensors. View ops take tensors apart: gradus/tensor/ops/view.h.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Return the joined tensors. Mixed dtypes are promoted. The result is channels-last when all of xs are.
Tensor cat(const std::vector<Tensor>& xs, int64_t dim);
Tensor stack(const std::vector<Tensor>& xs, int64_t dim);

}  // namespace gradus::raw
