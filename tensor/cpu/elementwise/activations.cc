// CPU kernels of the activation functors in gradus/tensor/ops/activations.h.
#include "gradus/tensor/ops/activations.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct DefineSlots<ActivationSlots>;

}  // namespace gradus::raw
