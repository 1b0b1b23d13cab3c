// Losses under the name that users of nn expect: nn::cross_entropy, nn::nll_loss, nn::mse_loss.
#pragma once

#include "gradus/autograd/ops/loss.h"

namespace gradus::nn {
using gradus::cross_entropy;
using gradus::mse_loss;
using gradus::nll_loss;
}  // namespace gradus::nn
