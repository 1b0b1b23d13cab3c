// Interpolation between latents.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::gan {

// Spherical linear interpolation from a (t = 0) to b (t = 1): the direction turns at a constant rate, and the
// length is (1 - t) |a| + t |b|. Normal vectors of many dims have nearly the same length, which linear
// interpolation would shorten. Vectors that are parallel, opposite or 0 are interpolated linearly.
// Shapes: a, b [...,D] alike -> [...,D].
// Errors: ShapeError unless the shapes are equal, of at least one dim; DTypeError unless floating point;
// ValueError for t outside [0,1].
// Source: Shoemake, "Animating rotation with quaternion curves", SIGGRAPH 1985.
Tensor slerp(const Tensor& a, const Tensor& b, double t);

}  // namespace gradus::gan
