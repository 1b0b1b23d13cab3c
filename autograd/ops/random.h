// In-place random numbers. Factories of random tensors (rand, randn, randint, randperm, bernoulli)
// are in gradus/tensor/ops/random.h.
#pragma once

#include "gradus/tensor/ops/random.h"

namespace gradus {

// Fills x with samples of the uniform distribution on [low, high).
// Errors: DTypeError unless x is floating; ValueError unless low <= high; StateError when an open
// recording follows x.
void uniform_(const Tensor& x, double low = 0, double high = 1);

// Fills x with samples of the normal distribution with this mean and standard deviation.
// Errors: DTypeError unless x is floating; ValueError unless std >= 0; StateError when an open
// recording follows x.
void normal_(const Tensor& x, double mean = 0, double std = 1);

// Fills x with 1 with probability p, else 0.
// Errors: ValueError unless 0 <= p <= 1; StateError when an open recording follows x.
void bernoulli_(const Tensor& x, double p);

}  // namespace gradus
