#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

}  // namespace
}  // namespace gradus::cpu

namespace gradus::raw {
using namespace cpu;  // NOLINT

constinit UnarySlot neg_kernel{"neg", &unary<Neg>};
constinit UnarySlot abs_kernel{"abs", &unary<Abs>};
constinit UnarySlot sign_kernel{"sign", &unary<Sign>};
constinit UnarySlot square_kernel{"square", &unary<Square>};
constinit UnarySlot exp_kernel{"exp", &unary<Exp>};
constinit UnarySlot expm1_kernel{"expm1", &unary<Expm1>};
constinit UnarySlot log_kernel{"log", &unary<Log>};
constinit UnarySlot log1p_kernel{"log1p", &unary<Log1p>};
constinit UnarySlot sqrt_kernel{"sqrt", &unary<Sqrt>};
constinit UnarySlot rsqrt_kernel{"rsqrt", &unary<Rsqrt>};
constinit UnarySlot reciprocal_kernel{"reciprocal", &unary<Reciprocal>};
constinit UnarySlot sin_kernel{"sin", &unary<Sin>};
constinit UnarySlot cos_kernel{"cos", &unary<Cos>};
constinit UnarySlot erf_kernel{"erf", &unary<Erf>};
constinit UnarySlot floor_kernel{"floor", &unary<Floor>};
constinit UnarySlot ceil_kernel{"ceil", &unary<Ceil>};
constinit UnarySlot round_kernel{"round", &unary<Round>};
constinit decltype(clamp_kernel) clamp_kernel{"clamp", &unary<Clamp, double, double, int64_t, int64_t>};
constinit BinarySlot2 clamp_backward_kernel{"clamp_backward", &binary<ClampBackward, double, double>};

}  // namespace gradus::raw
