// Dropout: sets random elements to zero while training.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct DropoutOptions {
  double p = 0.5;  // probability of a zero, in [0, 1]
};

// In training, zeroes each element with probability p and scales the others by 1 / (1 - p); else returns x.
class Dropout final : public LayerWith<DropoutOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  Tensor forward_temporary(Tensor&& x) override;
};

}  // namespace gradus::nn
