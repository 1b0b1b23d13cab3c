#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

}  // namespace
}  // namespace gradus::cpu

namespace gradus::raw {
using namespace cpu;  // NOLINT

constinit BinarySlot atan2_kernel{"atan2", &binary<Atan2>};
constinit BinarySlot fmod_kernel{"fmod", &binary<Fmod>};
constinit BinarySlot floor_divide_kernel{"floor_divide", &binary<FloorDivide>};
constinit BinarySlot trunc_divide_kernel{"div", &binary<TruncDivide>};
constinit BinarySlot hypot_kernel{"hypot", &binary<Hypot>};
constinit BinarySlot copysign_kernel{"copysign", &binary<Copysign>};
constinit BinarySlot xlogy_kernel{"xlogy", &binary<Xlogy>};
constinit BinarySlot logaddexp_kernel{"logaddexp", &binary<LogAddExp>};
constinit BinarySlot heaviside_kernel{"heaviside", &binary<Heaviside>};
constinit BinarySlot bitwise_and_kernel{"bitwise_and", &binary<BitwiseAnd>};
constinit BinarySlot bitwise_or_kernel{"bitwise_or", &binary<BitwiseOr>};
constinit BinarySlot bitwise_xor_kernel{"bitwise_xor", &binary<BitwiseXor>};
constinit UnarySlot bitwise_not_kernel{"bitwise_not", &unary<BitwiseNot>};
constinit BinarySlot bitwise_left_shift_kernel{"bitwise_left_shift", &binary<ShiftLeft>};
constinit BinarySlot bitwise_right_shift_kernel{"bitwise_right_shift", &binary<ShiftRight>};

}  // namespace gradus::raw
