// Instantiates the element-wise CUDA kernels (ops/elementwise.h) of the functors in ArithmeticSlots
// (tensor/ops/arithmetic.h), and registers them in the ops' kernel slots when the program starts.
#include "gradus/tensor/ops/arithmetic.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {

[[maybe_unused]] static const bool is_set = fill_slots(functors::ArithmeticSlots());

}  // namespace gradus::cuda
