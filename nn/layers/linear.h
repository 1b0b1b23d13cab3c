// Linear (fully connected), Bilinear (two inputs, linear in each of them) and Identity.
#pragma once

#include "gradus/nn/layer.h"
#include "gradus/nn/options.h"

namespace gradus::nn {

struct LinearOptions {
  Required<int64_t, "in"> in;  // or kLazy
  Required<int64_t, "out"> out;
  bool bias = true;
};
extern template class ModuleWith<LinearOptions, Layer>;

// y = x weight^T + bias. Initial weight and bias are uniform on +-1/sqrt(in).
// Shapes: x [...,in] -> [...,out]; weight [out,in], bias [out].
// Errors: ValueError of the constructor for negative sizes; ShapeError, DTypeError, DeviceError of a call.
class Linear final : public LayerWith<LinearOptions> {
 public:
  using LayerWith::LayerWith;

  Parameter weight{this, "weight", initial_weight()};
  Parameter bias{this, "bias", initial_bias()};

  Tensor forward(const Tensor& x) override;
  // Returns relu(layer(x)), by linear_relu unless the layer has hooks, which get the result before the relu.
  Tensor relu(const Tensor& x);

 private:
  Tensor initial_weight();
  Tensor initial_bias() const;
  void set_size(const Tensor& x);
};

struct BilinearOptions {
  Required<int64_t, "in1"> in1;
  Required<int64_t, "in2"> in2;
  Required<int64_t, "out"> out;
  bool bias = true;
};
extern template class ModuleWith<BilinearOptions>;

// y_o = a^T W_o b + bias_o. Initial weight and bias are uniform on +-1/sqrt(in1).
// Shapes: a [...,in1], b [...,in2] -> [...,out]; weight [out,in1,in2], bias [out].
// Errors: ValueError of the constructor for sizes below 1; ShapeError, DTypeError, DeviceError of a call.
class Bilinear final : public ModuleWith<BilinearOptions> {
 public:
  using ModuleWith::ModuleWith;
  Parameter weight{this, "weight", initial(true, {*options().out, *options().in1, *options().in2})};
  Parameter bias{this, "bias", initial(options().bias, {*options().out})};

  Tensor operator()(const Tensor& a, const Tensor& b);

 private:
  Tensor initial(bool enabled, const Shape& shape) const;
};

struct IdentityOptions {};

// Returns x.
class Identity final : public LayerWith<IdentityOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override { return x; }
};

}  // namespace gradus::nn
