#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

}  // namespace
}  // namespace gradus::cpu

namespace gradus::raw {
using namespace cpu;  // NOLINT

constinit BinarySlot add_kernel{"add", &binary<Add>};
constinit BinarySlot sub_kernel{"sub", &binary<Sub>};
constinit BinarySlot mul_kernel{"mul", &binary<Mul>};
constinit BinarySlot div_kernel{"div", &binary<Div>};
constinit BinarySlot pow_kernel{"pow", &binary<Pow>};
constinit BinarySlot remainder_kernel{"remainder", &binary<Remainder>};
constinit BinarySlot maximum_kernel{"maximum", &binary<Maximum>};
constinit BinarySlot minimum_kernel{"minimum", &binary<Minimum>};
constinit decltype(add_scaled_kernel) add_scaled_kernel{"add", &binary<AddScaled, double, int64_t>};
constinit BinarySlot1 lerp_kernel{"lerp", &binary<Lerp, double>};
constinit TernarySlot lerp_tensor_kernel{"lerp", &ternary<LerpTensor>};
constinit TernarySlot1 addcmul_kernel{"addcmul", &ternary<AddCMul, double>};
constinit TernarySlot1 addcdiv_kernel{"addcdiv", &ternary<AddCDiv, double>};

}  // namespace gradus::raw
