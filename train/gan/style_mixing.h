// Style mixing: images from two latents, one of which determines the coarse and the other the fine styles.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::gan {

// Returns the style vectors of layers before `cut` from ws1, and those from `cut` on from ws2. A cut of L gives
// ws1. The operations do not depend on the value of `cut`, so that ranks with different cuts, and a captured graph,
// run the same ones.
//
//   Tensor mixed = gan::mix_styles(gen.mapping(z1), gen.mapping(z2), randint(1, 8, {}));
//
// Shapes: ws1, ws2 [N,L,D] alike, cut i64[] or i64[N] -> [N,L,D].
// Errors: ShapeError; DTypeError for a cut that is not an integer.
// Source: Karras et al., "A style-based generator architecture for GANs", CVPR 2019.
Tensor mix_styles(const Tensor& ws1, const Tensor& ws2, const Tensor& cut);

}  // namespace gradus::gan
