// CUDA kernels of the activation functors in gradus/tensor/ops/activations.h.
#include "gradus/tensor/ops/activations.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {

[[maybe_unused]] static const bool is_set = fill_slots(functors::ActivationSlots());

}  // namespace gradus::cuda
