// CPU kernels of the exponential, logarithmic, trigonometric and special functors in gradus/tensor/ops/math.h.
#include "gradus/tensor/ops/math.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct DefineSlots<MathSlots>;
template struct DefineSlots<TrigonometrySlots>;

}  // namespace gradus::raw
