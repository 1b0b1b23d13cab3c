// The slot that matmul.cc fills.
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/matmul.h"

namespace gradus::raw {

constinit decltype(matmul_kernel) matmul_kernel{"matmul"};

}  // namespace gradus::raw
