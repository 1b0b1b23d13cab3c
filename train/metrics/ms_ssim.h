// Multi-scale structural similarity (MS-SSIM) of images, about 0 to 1. A mode collapse of a generator shows
// as a higher mean similarity of pairs than that of real images.
//
// Not collective: each rank compares its own images.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

// Returns the similarity of each pair (a[i], b[i]): prod_{s<4} contrast_s^w_s * ssim_4^w_4 over 5 scales,
// each the 2x2 average pooling of the scale before. The window is Gaussian, of 11 pixels with standard
// deviation 1.5, smaller for smaller images. Negative contrasts and similarities count as 0.
// Shapes: a, b u8[N,C,H,W] of one shape, H and W multiples of 16 -> f64[N].
// Errors: DTypeError, ShapeError.
// Source: Wang et al., "Multi-scale structural similarity for image quality assessment", 2003.
Tensor ms_ssim(const Tensor& a, const Tensor& b);

// Returns the mean similarity of the pairs (0,1), (2,3), ... of images: lower for more diverse images. The
// last of an odd number is not used.
// Shapes: images u8[N,C,H,W].
// Errors: those of ms_ssim; ValueError for fewer than 2 images.
// Source: Odena et al., "Conditional image synthesis with auxiliary classifier GANs", ICML 2017.
double ms_ssim_diversity(const Tensor& images);

}  // namespace gradus::metrics
