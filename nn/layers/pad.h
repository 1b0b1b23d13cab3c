// Padding layers for signals (1d), images (2d) and volumes (3d): ConstantPad,
// ZeroPad, ReflectionPad, ReplicationPad.
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

// Base of the padding layers. kMode is the value of a PadMode.
template <class O, int kMode> class PadLayer : public LayerWith<O> {
 public:
  using LayerWith<O>::LayerWith;
  Tensor forward(const Tensor& x) override;
};

// Pads x [N,C,...] or [C,...] with `value`, or with 0.
class ConstantPad1d final : public PadLayer<ConstantPadOptions<Padding1d>, 0> {
 public:
  using PadLayer::PadLayer;
};
class ConstantPad2d final : public PadLayer<ConstantPadOptions<Padding2d>, 0> {
 public:
  using PadLayer::PadLayer;
};
class ConstantPad3d final : public PadLayer<ConstantPadOptions<Padding3d>, 0> {
 public:
  using PadLayer::PadLayer;
};
class ZeroPad1d final : public PadLayer<PadLayerOptions<Padding1d>, 0> {
 public:
  using PadLayer::PadLayer;
};
class ZeroPad2d final : public PadLayer<PadLayerOptions<Padding2d>, 0> {
 public:
  using PadLayer::PadLayer;
};
class ZeroPad3d final : public PadLayer<PadLayerOptions<Padding3d>, 0> {
 public:
  using PadLayer::PadLayer;
};

// Pads with x's mirror image, without the edge element.
class ReflectionPad1d final : public PadLayer<PadLayerOptions<Padding1d>, 1> {
 public:
  using PadLayer::PadLayer;
};
class ReflectionPad2d final : public PadLayer<PadLayerOptions<Padding2d>, 1> {
 public:
  using PadLayer::PadLayer;
};
class ReflectionPad3d final : public PadLayer<PadLayerOptions<Padding3d>, 1> {
 public:
  using PadLayer::PadLayer;
};

// Pads by repeating x's edge element.
class ReplicationPad1d final : public PadLayer<PadLayerOptions<Padding1d>, 2> {
 public:
  using PadLayer::PadLayer;
};
class ReplicationPad2d final : public PadLayer<PadLayerOptions<Padding2d>, 2> {
 public:
  using PadLayer::PadLayer;
};
class ReplicationPad3d final : public PadLayer<PadLayerOptions<Padding3d>, 2> {
 public:
  using PadLayer::PadLayer;
};

}  // namespace gradus::nn
