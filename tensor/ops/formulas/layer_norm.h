// Scalar formulas of layer normalization and of its gradient for one element of a row, shared by the kernels
// of all devices. T is the type of the elements.
#pragma once

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::formulas {

// Normalizes the elements x of a row: z = (x - mean) * inv_std, with inv_std = 1 / sqrt(var + eps).
template <class T> struct RowNormalizer {
  T mean, scale;  // the row's mean and inv_std, rounded to T
  T shift;        // corrects the rounding of the mean, so that a large mean costs no precision

  GRADUS_HD RowNormalizer(double row_mean, double inv_std)
      : mean(T(row_mean)), scale(T(inv_std)), shift(T((double(mean) - row_mean) * inv_std)) {}
  GRADUS_HD T operator()(T x) const { return (x - mean) * scale + shift; }

  // Returns the gradient of x. g is the gradient of z; mean_g and mean_gz are the means of g and g * z over
  // the row. RMS normalization: mean_g = 0.
  GRADUS_HD T gradient(T g, T z, T mean_g, T mean_gz) const { return (g - mean_g - z * mean_gz) * scale; }
};

}  // namespace gradus::formulas
