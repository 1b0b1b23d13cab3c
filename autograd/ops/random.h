// In-place random numbers from the generator of the thread's Context; each call advances the generator.
// Element i depends only on the seed, the number of earlier draws and i. Not differentiable.
// gradus/tensor/ops/random.h has factories of random tensors (rand, randn, bernoulli, ...).
// Errors of all: StateError when an open recording follows x.
#pragma once

#include "gradus/tensor/ops/random.h"

namespace gradus {

// Fills x with samples of the uniform distribution on [low, high).
// Errors: DTypeError unless x is floating; ValueError unless low <= high.
void uniform_(const Tensor& x, double low = 0, double high = 1);

// Fills x with samples of the normal distribution with this mean and standard deviation.
// Errors: DTypeError unless x is floating; ValueError unless std >= 0.
void normal_(const Tensor& x, double mean = 0, double std = 1);

// Sets each element of x, of any dtype, to 1 with probability p, else to 0.
// Errors: ValueError unless 0 <= p <= 1.
void bernoulli_(const Tensor& x, double p);

}  // namespace gradus
