// Identity: returns its input.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct IdentityOptions {};

// Returns x.
class Identity final : public LayerWith<IdentityOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override { return x; }
};

}  // namespace gradus::nn
