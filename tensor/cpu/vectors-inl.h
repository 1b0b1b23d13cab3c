// The vectors of f32 that kernels hold in registers, at each level of processor (gradus/tensor/cpu/levels.h).
#if defined(GRADUS_TENSOR_CPU_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADUS_TENSOR_CPU_VECTORS_INL_H
#undef GRADUS_TENSOR_CPU_VECTORS_INL_H
#else
#define GRADUS_TENSOR_CPU_VECTORS_INL_H
#endif

#include "gradus/tensor/cpu/levels.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
constexpr FloatTag kFloats;

constexpr int kLanes = hn::MaxLanes(kFloats);  // floats in a register
constexpr int kRegisters = HWY_TARGET == HWY_AVX2 ? 16 : 32;

HWY_INLINE Floats load(const float* from) { return hn::LoadU(kFloats, from); }
HWY_INLINE void store(float* to, Floats v) { hn::StoreU(v, kFloats, to); }

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
