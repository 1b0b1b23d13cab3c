// Conversion between f16 and f32: vectors of the baseline instruction set (Highway), then single elements.
#include "gradus/tensor/cpu/half.h"

#include "gradus/tensor/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu {

using namespace HWY_NAMESPACE;  // NOLINT
constexpr hn::Rebind<hwy::float16_t, FloatTag> kHalves;

void to_floats(float* to, const f16* from, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(to + i,
          hn::PromoteTo(kFloats, hn::LoadU(kHalves, reinterpret_cast<const hwy::float16_t*>(from + i))));
  for (; i < n; ++i) to[i] = float(from[i]);
}
void to_f16(f16* to, const float* from, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(hn::DemoteTo(kHalves, load(from + i)), kHalves, reinterpret_cast<hwy::float16_t*>(to + i));
  for (; i < n; ++i) to[i] = f16(from[i]);
}

}  // namespace gradus::cpu
HWY_AFTER_NAMESPACE();
