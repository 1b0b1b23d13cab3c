// Raw joining of tensors. Taking apart is a matter of views: tensor/ops/view.h.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Mixed dtypes are promoted. Channels-last when all of xs are.
Tensor cat(const std::vector<Tensor>& xs, int64_t dim);
Tensor stack(const std::vector<Tensor>& xs, int64_t dim);

}  // namespace gradus::raw
