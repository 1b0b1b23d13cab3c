// Padding layers: forward of PadLayer, which calls the op pad, and its instantiations. An x without a batch
// gets a batch dim, which is removed from the result.
#include "gradus/nn/layers/pad.h"

#include "gradus/autograd/ops/images/pad.h"
#include "gradus/autograd/ops/view.h"

namespace gradus::nn {

static_assert(int(PadMode::kConstant) == 0 && int(PadMode::kReflect) == 1 && int(PadMode::kReplicate) == 2 &&
              int(PadMode::kCircular) == 3);

template <class O, int kMode, OptionName N> Tensor PadLayer<O, kMode, N>::forward(const Tensor& x) {
  const Dims padding = *this->options().padding;
  const std::vector<int64_t> pads(padding.begin(), padding.end());
  const int rank = padding.size() / 2;
  if (x.dim() != rank + 2 && x.dim() != rank + 1)
    throw ShapeError(N.name, "expected x of ", rank + 2, " dims, or ", rank + 1, " without a batch, got ",
                     describe(x));
  PadOptions options{.mode = PadMode(kMode)};
  if constexpr (requires(O o) { o.value; }) options.value = this->options().value;
  return x.dim() == rank + 2 ? pad(x, pads, options) : squeeze(pad(unsqueeze(x, 0), pads, options), 0);
}

template class PadLayer<ConstantPadOptions<Padding1d>, 0, "ConstantPad1d">;
template class PadLayer<ConstantPadOptions<Padding2d>, 0, "ConstantPad2d">;
template class PadLayer<ConstantPadOptions<Padding3d>, 0, "ConstantPad3d">;
template class PadLayer<PadLayerOptions<Padding1d>, 0, "ZeroPad1d">;
template class PadLayer<PadLayerOptions<Padding2d>, 0, "ZeroPad2d">;
template class PadLayer<PadLayerOptions<Padding3d>, 0, "ZeroPad3d">;
template class PadLayer<PadLayerOptions<Padding1d>, 1, "ReflectionPad1d">;
template class PadLayer<PadLayerOptions<Padding2d>, 1, "ReflectionPad2d">;
template class PadLayer<PadLayerOptions<Padding3d>, 1, "ReflectionPad3d">;
template class PadLayer<PadLayerOptions<Padding1d>, 2, "ReplicationPad1d">;
template class PadLayer<PadLayerOptions<Padding2d>, 2, "ReplicationPad2d">;
template class PadLayer<PadLayerOptions<Padding3d>, 2, "ReplicationPad3d">;
template class PadLayer<PadLayerOptions<Padding1d>, 3, "CircularPad1d">;
template class PadLayer<PadLayerOptions<Padding2d>, 3, "CircularPad2d">;
template class PadLayer<PadLayerOptions<Padding3d>, 3, "CircularPad3d">;

template class ModuleWith<ConstantPadOptions<Padding1d>, Layer>;
template class ModuleWith<ConstantPadOptions<Padding2d>, Layer>;
template class ModuleWith<ConstantPadOptions<Padding3d>, Layer>;
template class ModuleWith<PadLayerOptions<Padding1d>, Layer>;
template class ModuleWith<PadLayerOptions<Padding2d>, Layer>;
template class ModuleWith<PadLayerOptions<Padding3d>, Layer>;
}  // namespace gradus::nn
