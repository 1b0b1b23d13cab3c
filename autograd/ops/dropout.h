// Dropout of elements, of channels, and alpha dropout.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Sets each element to 0 with probability p and divides the others by 1 - p; p = 1 gives zeros. Returns x
// itself unless `training`, or if p = 0. The random numbers come from the Context's generator and differ
// between data-parallel replicas. The result reuses the buffer of a temporary that is its only owner.
// Errors: ValueError unless 0 <= p <= 1; DTypeError unless x is floating.
// Grad: dy / (1 - p) where x was kept, else 0.
// Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
Tensor dropout(Tensor&& x, double p = 0.5, bool training = true);

// Dropout of channels: all elements of a channel of a sample are kept or dropped together.
// Shapes: dropout1d x [N,C,L] or [C,L]; dropout2d [N,C,H,W] or [N,C,L]; dropout3d [N,C,D,H,W] or [C,D,H,W].
// Errors: ShapeError for other shapes; the rest as dropout.
// Source: Tompson et al., "Efficient object localization using convolutional networks", CVPR 2015.
Tensor dropout1d(const Tensor& x, double p = 0.5, bool training = true);
Tensor dropout2d(const Tensor& x, double p = 0.5, bool training = true);
Tensor dropout3d(const Tensor& x, double p = 0.5, bool training = true);

// Dropout for networks of SELU units, which preserves mean 0 and variance 1. Dropped elements are set to the
// limit of SELU at minus infinity, -1.7581. The result is
//   y = a x + b  with  a = ((1 - p) (1 + p 1.7581^2))^-1/2  and  b = 1.7581 a p;  y = 0 for p = 1.
// feature_alpha_dropout drops whole channels of x [N,C,...].
// Errors: as dropout; ShapeError for features of fewer than two dims.
// Grad: a dy where x was kept, else 0.
// Source: Klambauer et al., "Self-normalizing neural networks", NeurIPS 2017.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);

// Returns scale x where the bool mask is true, else 0; x and mask broadcast. Writes into x's buffer if the
// caller moves in the only reference and mask has x's shape.
// Errors: DTypeError unless x is floating and mask bool; ShapeError; DeviceError.
// Grad: the same of dy.
Tensor masked_scale(Tensor x, const Tensor& mask, double scale);

}  // namespace gradus
