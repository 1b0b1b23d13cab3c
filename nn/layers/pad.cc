#include "gradus/nn/layers/pad.h"

#include "gradus/autograd/ops/images/pad.h"
#include "gradus/autograd/ops/view.h"

namespace gradus::nn {
namespace {

std::vector<int64_t> listed(const Padding1d& p) { return {p.left, p.right}; }
std::vector<int64_t> listed(const Padding2d& p) { return {p.left, p.right, p.top, p.bottom}; }
std::vector<int64_t> listed(const Padding3d& p) {
  return {p.left, p.right, p.top, p.bottom, p.front, p.back};
}

static_assert(int(PadMode::kConstant) == 0 && int(PadMode::kReflect) == 1 && int(PadMode::kReplicate) == 2);

}  // namespace

template <class O, int kMode> Tensor PadLayer<O, kMode>::forward(const Tensor& x) {
  const std::vector<int64_t> pads = listed(*this->options().padding);
  const int rank = int(pads.size()) / 2;
  if (x.dim() != rank + 2 && x.dim() != rank + 1)
    throw ShapeError(this->type_name(), "expected x of ", rank + 2, " dims, or ", rank + 1,
                     " without a batch, given ", describe(x));
  PadOptions options{.mode = PadMode(kMode)};
  if constexpr (requires(O o) { o.value; }) options.value = this->options().value;
  return x.dim() == rank + 2 ? pad(x, pads, options) : squeeze(pad(unsqueeze(x, 0), pads, options), 0);
}

template <class O, int kMode> std::string PadLayer<O, kMode>::extra_repr() const {
  std::string text;
  for (const int64_t n : listed(*this->options().padding))
    text += concat(text.empty() ? "padding={" : ", ", n);
  text += "}";
  if constexpr (requires(O o) { o.value; }) text += concat(", value=", this->options().value);
  return text;
}

template class PadLayer<ConstantPadOptions<Padding1d>, 0>;
template class PadLayer<ConstantPadOptions<Padding2d>, 0>;
template class PadLayer<ConstantPadOptions<Padding3d>, 0>;
template class PadLayer<PadLayerOptions<Padding1d>, 0>;
template class PadLayer<PadLayerOptions<Padding2d>, 0>;
template class PadLayer<PadLayerOptions<Padding3d>, 0>;
template class PadLayer<PadLayerOptions<Padding1d>, 1>;
template class PadLayer<PadLayerOptions<Padding2d>, 1>;
template class PadLayer<PadLayerOptions<Padding3d>, 1>;
template class PadLayer<PadLayerOptions<Padding1d>, 2>;
template class PadLayer<PadLayerOptions<Padding2d>, 2>;
template class PadLayer<PadLayerOptions<Padding3d>, 2>;

}  // namespace gradus::nn
