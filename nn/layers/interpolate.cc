#include "gradus/nn/layers/interpolate.h"

namespace gradus::nn {

Tensor Upsample::forward(const Tensor& x) {
  const Options& o = options();
  return interpolate(
      x, {.size = o.size, .scale_factor = o.scale_factor, .mode = o.mode, .align_corners = o.align_corners});
}
std::string Upsample::extra_repr() const {
  const char* modes[] = {"nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"};
  const Options& o = options();
  std::string text;
  for (const double f : o.scale_factor) text += concat(text.empty() ? "scale_factor={" : ", ", f);
  if (o.scale_factor.empty())
    text = concat("size=", o.size);
  else
    text += "}";
  return concat(text, ", mode=", modes[int(o.mode)], o.align_corners ? ", align_corners=true" : "");
}

}  // namespace gradus::nn
