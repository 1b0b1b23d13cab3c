// The f32 vector type of kernels that are compiled per instruction set (gradus/tensor/cpu/levels.h), with
// unaligned loads and stores of f32 and bf16 memory. Built on Highway.
#if defined(GRADUS_TENSOR_CPU_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADUS_TENSOR_CPU_VECTORS_INL_H
#undef GRADUS_TENSOR_CPU_VECTORS_INL_H
#else
#define GRADUS_TENSOR_CPU_VECTORS_INL_H
#endif

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
constexpr FloatTag kFloats;

constexpr int kLanes = hn::MaxLanes(kFloats);                 // floats in a vector
constexpr int kRegisters = HWY_TARGET == HWY_AVX2 ? 16 : 32;  // vector registers of the instruction set

// D: a Highway tag of float vectors of any length. p may be unaligned.
template <class D> HWY_INLINE hn::Vec<D> load(D d, const float* p) { return hn::LoadU(d, p); }
template <class D> HWY_INLINE hn::Vec<D> load(D d, const bf16* p) {
  const hn::Rebind<uint16_t, D> halves;
  const hn::Rebind<uint32_t, D> words;
  const auto bits = hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D> HWY_INLINE void store(D d, hn::Vec<D> v, float* p) { hn::StoreU(v, d, p); }
// Rounds to nearest even, NaN to a quiet NaN, as bf16(float) does.
template <class D> HWY_INLINE void store(D, hn::Vec<D> v, bf16* p) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<uint16_t, D> halves;
  const auto bits = hn::BitCast(words, v), high = hn::ShiftRight<16>(bits);
  const auto up = hn::And(high, hn::Set(words, 1)) + hn::Set(words, 0x7fff);
  const auto quiet = hn::Or(high, hn::Set(words, 0x40));
  const auto rounded =
      hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(v)), quiet, hn::ShiftRight<16>(bits + up));
  const auto narrow = hn::DemoteTo(halves, hn::BitCast(hn::RebindToSigned<D>(), rounded));
  hn::StoreU(narrow, halves, reinterpret_cast<uint16_t*>(p));
}

template <class T> HWY_INLINE Floats load(const T* from) { return load(kFloats, from); }
template <class T> HWY_INLINE void store(T* to, Floats v) { store(kFloats, v, to); }

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
