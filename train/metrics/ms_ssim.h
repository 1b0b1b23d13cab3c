// Multi-scale structural similarity (MS-SSIM) of images: 1 for equal images, about 0 for unrelated ones. If a
// generator has collapsed to few modes, the mean similarity of pairs of its images is higher than that of real
// images.
//
// Images may be on any device; all work is done on the host, and results are on the host. Not collective: each
// rank compares its own images.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

// Returns the similarity of each pair (a[i], b[i]): prod_{s<4} contrast_s^w_s * ssim_4^w_4 over 5 scales, each the
// 2x2 average pooling of the scale before, with w = 0.0448, 0.2856, 0.3001, 0.2363, 0.1333. contrast_s (the
// contrast-structure term of SSIM) and ssim_4 are means over positions and channels, for pixels of 0 to 255. The
// window is Gaussian, without padding: of k = min(11, H_s, W_s) pixels at a scale of H_s x W_s pixels, with
// standard deviation 1.5 k / 11. Negative contrasts and similarities count as 0.
// Shapes: a, b u8[N,C,H,W] of one shape, H and W multiples of 16 -> f64[N].
// Errors: DTypeError, ShapeError.
// Source: Wang et al., "Multi-scale structural similarity for image quality assessment", 2003.
Tensor ms_ssim(const Tensor& a, const Tensor& b);

// Returns the mean similarity ms_ssim of the pairs of images (0,1), (2,3), ...: lower for more diverse images. The
// last image of an odd number is ignored.
// Shapes: images u8[N,C,H,W].
// Errors: those of ms_ssim; ValueError for fewer than 2 images.
// Source: Odena et al., "Conditional image synthesis with auxiliary classifier GANs", ICML 2017.
double ms_ssim_diversity(const Tensor& images);

}  // namespace gradus::metrics
