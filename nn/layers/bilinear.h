// Bilinear: a layer with two inputs that is linear in each of them.
#pragma once

#include "gradus/nn/options.h"

namespace gradus::nn {

struct BilinearOptions {
  Required<int64_t, "in1"> in1;
  Required<int64_t, "in2"> in2;
  Required<int64_t, "out"> out;
  bool bias = true;
};
extern template class ModuleWith<BilinearOptions>;

// y_o = a^T W_o b + bias_o. Initial weight and bias are uniform on +-1/sqrt(in1).
// Shapes: a [...,in1], b [...,in2] -> [...,out]; weight [out,in1,in2], bias [out].
// Errors: ShapeError.
class Bilinear final : public ModuleWith<BilinearOptions> {
 public:
  using ModuleWith::ModuleWith;
  Parameter weight{this, "weight", initial(true, {*options().out, *options().in1, *options().in2})};
  Parameter bias{this, "bias", initial(options().bias, {*options().out})};

  Tensor operator()(const Tensor& a, const Tensor& b);

 private:
  Tensor initial(bool enabled, const Shape& shape) const;
};

}  // namespace gradus::nn
