// CUDA kernels of the trigonometric and hyperbolic functors in gradus/tensor/ops/math.h.
#include "gradus/tensor/ops/math.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {

[[maybe_unused]] static const bool is_set = fill_slots(functors::TrigonometrySlots());

}  // namespace gradus::cuda
