// Walks between latents.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::gan {

// Returns the vector that lies the share t of the way from a to b on the arc between them: its direction
// turns evenly, and its length changes evenly. Normal vectors of many numbers have nearly one length,
// which a straight line would leave. Vectors that point the same way, opposite ways, or are 0, are joined
// by a straight line.
// Shapes: a, b [...,D] alike -> [...,D].
// Errors: ShapeError; DTypeError unless floating point; ValueError for a t that is not in [0,1].
// Source: Shoemake, "Animating rotation with quaternion curves", SIGGRAPH 1985.
Tensor slerp(const Tensor& a, const Tensor& b, double t);

}  // namespace gradus::gan
