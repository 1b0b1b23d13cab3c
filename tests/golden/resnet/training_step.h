// One training step of a ResNet, as make_golden.py does it with torchvision: SGD with momentum and weight
// decay on four images.
#pragma once

#include <string>
#include <vector>

#include "gradus/nn/module.h"
#include "gradus/tests/golden/uniform.h"

namespace gradus::golden {

struct TrainingStep {
  Tensor loss, logits;
  nn::StateDict grads, params, buffers;  // params and buffers: after the optimizer's step
};

// From the weights in `state`, in `dtype`, on images of height and width `size`.
TrainingStep training_step(const std::string& network, const nn::StateDict& state, int64_t size, DType dtype);

// The state that make_golden.py's `value_of` gives a network, or a ResNet by its name.
nn::StateDict state_from_formula(const nn::Module& net);
nn::StateDict state_from_formula(const std::string& network);

// Euclidean norm of x, and of x - y; computed in f64.
double norm_of(const Tensor& x);
double distance(const Tensor& x, const Tensor& y);

}  // namespace gradus::golden
