// Instantiates the element-wise CUDA kernels (ops/elementwise.h) of all functors for exponential, logarithmic
// and special functions in tensor/ops/math.h, and registers them in the ops' kernel slots when the program
// starts.
#include "gradus/tensor/ops/math.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {

[[maybe_unused]] static const bool is_set = fill_slots(functors::MathSlots());

}  // namespace gradus::cuda
