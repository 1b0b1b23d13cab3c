// Conversion loops for all pairs of dtypes, one instantiation of convert() for each. Equal dtypes are copied by
// memcpy if both arrays are contiguous; contiguous f16 <-> f32 is converted in vectors (half.h).
#include "gradus/tensor/cpu/convert.h"

#include <algorithm>
#include <cstring>

#include "gradus/tensor/cpu/half.h"

namespace gradus::cpu {
namespace {

template <class To, class From> To convert_one(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<From, f16> || std::is_same_v<From, bf16>) {
    return convert_one<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, f16> || std::is_same_v<To, bf16>) {
    return To(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && sizeof(To) < 4 && std::is_floating_point_v<From>) {
    return static_cast<To>(static_cast<int32_t>(x));  // keeps the low bits, as x86 does
  } else {
    return static_cast<To>(x);
  }
}

template <class To, class From>
void convert(int64_t n, void* dst, int64_t dst_stride, const void* src, int64_t src_stride) {
  To* __restrict d = static_cast<To*>(dst);
  const From* __restrict s = static_cast<const From*>(src);
  if (dst_stride == 1 && src_stride == 1) {
    if constexpr (std::is_same_v<To, From>)
      std::memcpy(d, s, n * sizeof(To));
    else if constexpr (std::is_same_v<To, float> && std::is_same_v<From, f16>)
      to_floats(d, s, n);
    else if constexpr (std::is_same_v<To, f16> && std::is_same_v<From, float>)
      to_f16(d, s, n);
    else
      for (int64_t i = 0; i < n; ++i) d[i] = convert_one<To>(s[i]);
  } else if (dst_stride == 1 && src_stride == 0) {
    std::fill_n(d, n, convert_one<To>(*s));
  } else if (std::is_same_v<To, From> && dst_stride == 1 && src_stride == -1) {
    for (int64_t i = 0; i < n; ++i) d[i] = convert_one<To>(s[-i]);
  } else {
    for (int64_t i = 0; i < n; ++i) d[i * dst_stride] = convert_one<To>(s[i * src_stride]);
  }
}

}  // namespace

ConvertFunction converter(DType to, DType from) {
  return dispatch_all(to, [&]<class To>() {
    return dispatch_all(from, []<class From>() -> ConvertFunction { return &convert<To, From>; });
  });
}

}  // namespace gradus::cpu
