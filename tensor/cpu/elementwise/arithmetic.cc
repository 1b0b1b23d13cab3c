// Defines the CPU kernels of the arithmetic and rounding functors in tensor/ops/arithmetic.h: the template of
// kernels.h, instantiated for each slot of the two lists.
#include "gradus/tensor/ops/arithmetic.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct DefineSlots<ArithmeticSlots>;
template struct DefineSlots<RoundingSlots>;

}  // namespace gradus::raw
