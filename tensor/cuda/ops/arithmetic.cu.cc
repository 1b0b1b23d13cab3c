// CUDA kernels of the arithmetic functors in gradus/tensor/ops/arithmetic.h.
#include "gradus/tensor/ops/arithmetic.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {

[[maybe_unused]] static const bool is_set = fill_slots(functors::ArithmeticSlots());

}  // namespace gradus::cuda
