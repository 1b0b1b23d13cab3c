// Defines the CPU kernels of the exponential, logarithmic, trigonometric and special functors in
// tensor/ops/math.h: the template of kernels.h, instantiated for each slot of the two lists.
#include "gradus/tensor/ops/math.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct DefineSlots<MathSlots>;
template struct DefineSlots<TrigonometrySlots>;

}  // namespace gradus::raw
