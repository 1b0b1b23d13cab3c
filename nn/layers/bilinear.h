// Bilinear: a layer of two inputs, linear in each.
#pragma once

#include "gradus/nn/module.h"

namespace gradus::nn {

struct BilinearOptions {
  Required<int64_t, "in1"> in1;
  Required<int64_t, "in2"> in2;
  Required<int64_t, "out"> out;
  bool bias = true;
};

// Computes y_o = a^T W_o b + bias_o. Weight and bias start uniform in +-1/sqrt(in1).
// Shapes: a [...,in1], b [...,in2] -> [...,out]; weight [out,in1,in2], bias [out].
// Errors: ShapeError.
class Bilinear final : public Module {
 public:
  using Options = BilinearOptions;
  Bilinear(Module* parent, std::string name, Options options)
      : Module(parent, std::move(name)), options_(options) {}
  explicit Bilinear(Options options) : options_(options) {}
  const Options& options() const { return options_; }

  Tensor operator()(const Tensor& a, const Tensor& b);
  std::string extra_repr() const override;

 private:
  Tensor initial(bool wanted, const Shape& shape) const;
  const Options options_;

 public:
  Parameter weight{this, "weight", initial(true, {*options_.out, *options_.in1, *options_.in2})};
  Parameter bias{this, "bias", initial(options_.bias, {*options_.out})};
};

}  // namespace gradus::nn
