// Multi-scale structural similarity: how alike two images are to the eye, from about 0 to 1.
//
// A generator whose images are all alike has a high mean similarity of pairs; compare it with that of real
// images. The results are those of the images given, on whichever rank: nothing is collective.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

// Returns the similarity of each pair (a[i], b[i]): the product of the contrasts of 4 sizes and of the
// structural similarity of the fifth, each to the power of its weight. From size to size, means of 2 x 2
// pixels are taken. The window is Gaussian, of 11 pixels with standard deviation 1.5, or smaller where the
// image is. Negative contrasts and similarities count as 0.
// Shapes: a, b u8[N,C,H,W] alike, H and W multiples of 16 -> f64[N].
// Errors: DTypeError, ShapeError.
// Source: Wang et al., "Multi-scale structural similarity for image quality assessment", 2003.
Tensor ms_ssim(const Tensor& a, const Tensor& b);

// Returns the mean similarity of the pairs (0,1), (2,3), ... of images: the lower, the more diverse they are.
// The last of an odd number is left out.
// Shapes: images u8[N,C,H,W].
// Errors: those of ms_ssim; ValueError for fewer than 2 images.
// Source: Odena et al., "Conditional image synthesis with auxiliary classifier GANs", ICML 2017.
double ms_ssim_diversity(const Tensor& images);

}  // namespace gradus::metrics
