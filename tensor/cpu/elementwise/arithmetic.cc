// CPU kernels of the arithmetic functors in gradus/tensor/ops/arithmetic.h.
#include "gradus/tensor/ops/arithmetic.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct DefineSlots<ArithmeticSlots>;
template struct DefineSlots<RoundingSlots>;

}  // namespace gradus::raw
