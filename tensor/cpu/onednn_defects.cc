#include "gradus/tensor/cpu/onednn_defects.h"

namespace gradus::onednn {

// The conditions are wider than what was seen: a slower kernel costs less than a wrong one.
bool errs(std::string_view implementation, Pass pass, const Shape& x, const Shape& w,
          const raw::ConvGeometry& g) {
  const auto is = [&](std::string_view part) { return implementation.find(part) != std::string_view::npos; };
  const int last = g.rank() - 1;
  if (is("amx") && g.rank() == 3) return true;
  if (is("jit_1x1:avx512_core_amx")) return true;
  if (is("brgconv") && is("amx"))  // pixels between the filter's places
    for (int d = 0; d < g.rank(); ++d)
      if (g.stride[d] > w[d + 2]) return true;
  if (implementation.ends_with("jit_bf16_1x1:avx512_core") && pass != Pass::kWeightGrad) return true;
  if (is("jit_bf16_1x1:")) {  // pairs of channels end in the next pixel
    const int64_t summed = pass == Pass::kForward ? w[1] : w[0] / g.groups;
    if (pass != Pass::kWeightGrad && summed % 2 == 1) return true;
  }
  if (pass != Pass::kWeightGrad) return false;
  if (is("1x1:") && g.stride.product() > 1) return true;
  if (g.rank() == 3 && is("jit:") && g.stride[0] > 1 && g.padding[0] >= g.stride[0]) return true;
  if (!is("jit_bf16:") && !is("jit:avx512_core_amx")) return false;
  return x[last + 2] < g.stride[last] || g.dilation[0] > 1 || g.rank() == 3;
}

bool errs_in_matmul(std::string_view implementation, int64_t inner) {
  return implementation.find("amx") != std::string_view::npos && inner % 32 != 0;
}

}  // namespace gradus::onednn
