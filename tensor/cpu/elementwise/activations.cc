// Defines the CPU kernels of the activation functors (relu, sigmoid, gelu, ... and their gradients) in
// tensor/ops/activations.h: the template of kernels.h, instantiated for each slot in ActivationSlots.
#include "gradus/tensor/ops/activations.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct DefineSlots<ActivationSlots>;

}  // namespace gradus::raw
