// Padding layers for signals (1d), images (2d) and volumes (3d), with or without a batch dim: ConstantPad,
// ZeroPad, ReflectionPad, ReplicationPad, CircularPad. Each applies the op pad (gradus/autograd/ops/images/pad.h).
// Errors of a call: ShapeError for other dims, and those of pad.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

// Numbers of elements to add before and after each spatial dim, starting with the last dim. A single number
// applies to all sides. Negative numbers crop.
struct Padding1d {
  int64_t left = 0, right = 0;
  template <std::integral T> constexpr Padding1d(T all) : left(all), right(all) {}
  constexpr Padding1d(int64_t l, int64_t r) : left(l), right(r) {}
  operator Dims() const { return {left, right}; }
};
struct Padding2d {
  int64_t left = 0, right = 0, top = 0, bottom = 0;
  template <std::integral T> constexpr Padding2d(T all) : left(all), right(all), top(all), bottom(all) {}
  constexpr Padding2d(int64_t l, int64_t r, int64_t t, int64_t b) : left(l), right(r), top(t), bottom(b) {}
  operator Dims() const { return {left, right, top, bottom}; }
};
struct Padding3d {
  int64_t left = 0, right = 0, top = 0, bottom = 0, front = 0, back = 0;
  template <std::integral T>
  constexpr Padding3d(T all) : left(all), right(all), top(all), bottom(all), front(all), back(all) {}
  constexpr Padding3d(int64_t l, int64_t r, int64_t t, int64_t b, int64_t f, int64_t k)
      : left(l), right(r), top(t), bottom(b), front(f), back(k) {}
  operator Dims() const { return {left, right, top, bottom, front, back}; }
};

template <class P> struct PadLayerOptions {
  Required<P, "padding"> padding;
};
extern template class ModuleWith<PadLayerOptions<Padding1d>, Layer>;
extern template class ModuleWith<PadLayerOptions<Padding2d>, Layer>;
extern template class ModuleWith<PadLayerOptions<Padding3d>, Layer>;
template <class P> struct ConstantPadOptions {
  Required<P, "padding"> padding;
  double value = 0;
};
extern template class ModuleWith<ConstantPadOptions<Padding1d>, Layer>;
extern template class ModuleWith<ConstantPadOptions<Padding2d>, Layer>;
extern template class ModuleWith<ConstantPadOptions<Padding3d>, Layer>;

// A padding layer. kMode is the value of a PadMode (0: constant, 1: reflect, 2: replicate, 3: circular); N is
// the class's name.
template <class O, int kMode, OptionName N> class PadLayer final : public LayerWith<O> {
 public:
  using LayerWith<O>::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string type_name() const override { return N.name; }
};

// Pads x [N,C,...] or [C,...] with `value`, or with 0.
using ConstantPad1d = PadLayer<ConstantPadOptions<Padding1d>, 0, "ConstantPad1d">;
using ConstantPad2d = PadLayer<ConstantPadOptions<Padding2d>, 0, "ConstantPad2d">;
using ConstantPad3d = PadLayer<ConstantPadOptions<Padding3d>, 0, "ConstantPad3d">;
using ZeroPad1d = PadLayer<PadLayerOptions<Padding1d>, 0, "ZeroPad1d">;
using ZeroPad2d = PadLayer<PadLayerOptions<Padding2d>, 0, "ZeroPad2d">;
using ZeroPad3d = PadLayer<PadLayerOptions<Padding3d>, 0, "ZeroPad3d">;

// Pads with x's mirror image, without the edge element.
using ReflectionPad1d = PadLayer<PadLayerOptions<Padding1d>, 1, "ReflectionPad1d">;
using ReflectionPad2d = PadLayer<PadLayerOptions<Padding2d>, 1, "ReflectionPad2d">;
using ReflectionPad3d = PadLayer<PadLayerOptions<Padding3d>, 1, "ReflectionPad3d">;

// Pads by repeating x's edge element.
using ReplicationPad1d = PadLayer<PadLayerOptions<Padding1d>, 2, "ReplicationPad1d">;
using ReplicationPad2d = PadLayer<PadLayerOptions<Padding2d>, 2, "ReplicationPad2d">;
using ReplicationPad3d = PadLayer<PadLayerOptions<Padding3d>, 2, "ReplicationPad3d">;

// Pads with x's elements from the other end.
using CircularPad1d = PadLayer<PadLayerOptions<Padding1d>, 3, "CircularPad1d">;
using CircularPad2d = PadLayer<PadLayerOptions<Padding2d>, 3, "CircularPad2d">;
using CircularPad3d = PadLayer<PadLayerOptions<Padding3d>, 3, "CircularPad3d">;

}  // namespace gradus::nn
