// Instantiates the element-wise CUDA kernels (tensor/cuda/ops/elementwise.h) of all functors for activation
// functions in tensor/ops/activations.h, and registers them in the ops' kernel slots when the program starts.
#include "gradus/tensor/ops/activations.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {

[[maybe_unused]] static const bool is_set = fill_slots(functors::ActivationSlots());

}  // namespace gradus::cuda
