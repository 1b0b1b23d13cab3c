// mix_styles selects by a mask [N,L,1], true for layers before the cut.
#include "gradus/train/gan/style_mixing.h"

#include "gradus/autograd/ops/ops.h"

namespace gradus::gan {

Tensor mix_styles(const Tensor& ws1, const Tensor& ws2, const Tensor& cut) {
  if (ws1.dim() != 3 || ws1.shape() != ws2.shape() || cut.dim() > 1 ||
      (cut.dim() == 1 && cut.size(0) != ws1.size(0)))
    throw ShapeError("mix_styles", "expected styles [N,L,D] alike and a cut [] or [N], got ", describe(ws1),
                     ", ", describe(ws2), " and ", describe(cut));
  if (is_floating(cut.dtype()) || cut.dtype() == DType::kBool)
    throw DTypeError("mix_styles", "expected an integer cut, got ", describe(cut));
  const Tensor layers = arange(ws1.size(1), {.dtype = DType::kI64, .device = ws1.device()});
  const Tensor from_first = lt(reshape(layers, {1, -1, 1}), reshape(to(cut, ws1.device()), {-1, 1, 1}));
  return where(from_first, ws1, ws2);
}

}  // namespace gradus::gan
