// Instantiates the element-wise CUDA kernels (ops/elementwise.h) of the trigonometric and hyperbolic functors
// in tensor/ops/math.h, and registers them in the kernel slots at program start.
#include "gradus/tensor/ops/math.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {

[[maybe_unused]] static const bool is_set = fill_slots(functors::TrigonometrySlots());

}  // namespace gradus::cuda
