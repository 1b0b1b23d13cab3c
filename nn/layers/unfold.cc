// Unfold and Fold layers.
#include "gradus/nn/layers/unfold.h"

namespace gradus::nn {

Tensor Unfold::forward(const Tensor& x) { return unfold(x, options()); }

Tensor Fold::forward(const Tensor& x) {
  const Options& o = options();
  return fold(x, o.output,
              {.kernel = *o.kernel, .stride = o.stride, .padding = o.padding, .dilation = o.dilation});
}

template class ModuleWith<FoldOptions, Layer>;
template class ModuleWith<UnfoldOptions, Layer>;
}  // namespace gradus::nn
