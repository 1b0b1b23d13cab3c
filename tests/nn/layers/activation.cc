// Rows of the layer table (layer_table.h) for activation layers; activation.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

std::vector<Row> table() {
  return {
      row<nn::ReLU>("ReLU", {}, {.inputs = {kFlat}}),
      row<nn::ReLU6>("ReLU6", {}, {.inputs = {kFlat}}),
      row<nn::Sigmoid>("Sigmoid", {}, {.inputs = {kFlat}}),
      row<nn::LogSigmoid>("LogSigmoid", {}, {.inputs = {kFlat}}),
      row<nn::Tanh>("Tanh", {}, {.inputs = {kFlat}}),
      row<nn::Tanhshrink>("Tanhshrink", {}, {.inputs = {kFlat}}),
      row<nn::Softsign>("Softsign", {}, {.inputs = {kFlat}}),
      row<nn::SiLU>("SiLU", {}, {.inputs = {kFlat}}),
      row<nn::Mish>("Mish", {}, {.inputs = {kFlat}, .prints = "Mish()"}),
      row<nn::SELU>("SELU", {}, {.inputs = {kFlat}}),
      row<nn::Hardsigmoid>("Hardsigmoid", {}, {.inputs = {kFlat}}),
      row<nn::Hardswish>("Hardswish", {}, {.inputs = {kFlat}}),
      row<nn::LeakyReLU>("LeakyReLU", {}, {.inputs = {kFlat}}),
      row<nn::LeakyReLU>("LeakyReLU/slope", {.negative_slope = 0.2}),
      row<nn::PReLU>("PReLU"),
      row<nn::PReLU>(
          "PReLU/channels", {.num_parameters = 3},
          {.inputs = {{kRows, 3}},
           .prints = "PReLU(num_parameters=3)",
           .errors = {LAYER_ERROR(ValueError, nn::PReLU({.num_parameters = 0}), "[PReLU]", "0"),
                      LAYER_ERROR(ShapeError, nn::PReLU({.num_parameters = 3})(ones({2, 4})), "[3]")}}),
      // PyTorch's values are those of evaluation, where the slope is the mean of the bounds.
      row<nn::RReLU>("RReLU", {},
                     {.errors = {LAYER_ERROR(ValueError, nn::RReLU({.lower = 2, .upper = 1})(ones({1})),
                                             "[RReLU]", "2 and 1")}}),
      // A fixed slope: `inputs` are compared between dtypes, which draw different random numbers.
      row<nn::RReLU>("RReLU/fixed", {.lower = 0.25, .upper = 0.25}, {.inputs = {kFlat}, .golden = false}),
      row<nn::RReLU>("RReLU/bounds", {.lower = 0.25, .upper = 0.5},
                     {.golden = false, .prints = "RReLU(lower=0.25, upper=0.5)"}),
      row<nn::ELU>("ELU", {}, {.inputs = {kFlat}}),
      row<nn::ELU>("ELU/alpha", {.alpha = 0.7}),
      row<nn::CELU>("CELU", {}, {.inputs = {kFlat}}),
      row<nn::CELU>("CELU/alpha", {.alpha = 0.5}),
      row<nn::GELU>("GELU", {}, {.inputs = {kFlat}}),
      row<nn::GELU>("GELU/tanh", {.approximate = Gelu::kTanh},
                    {.inputs = {kFlat}, .prints = "GELU(approximate=kTanh)"}),
      row<nn::Softplus>("Softplus", {}, {.inputs = {kFlat}, .prints = "Softplus()"}),
      row<nn::Softplus>("Softplus/options", {.beta = 2, .threshold = 3}),
      row<nn::Softplus>("Softplus/late", {.threshold = 30}),
      row<nn::Hardtanh>("Hardtanh", {}, {.inputs = {kFlat}, .prints = "Hardtanh()"}),
      row<nn::Hardtanh>("Hardtanh/bounds", {.low = -0.5, .high = 2}),
      row<nn::Hardshrink>("Hardshrink", {}, {.inputs = {kFlat}}),
      row<nn::Hardshrink>("Hardshrink/lambda", {.lambda = 1.3}),
      row<nn::Softshrink>("Softshrink", {}, {.inputs = {kFlat}}),
      row<nn::Softshrink>("Softshrink/lambda", {.lambda = 1.3}),
      row<nn::Threshold>("Threshold", {.threshold = 0.4, .value = -7},
                         {.inputs = {kFlat}, .prints = "Threshold(threshold=0.4, value=-7)"}),
      row<nn::GLU>("GLU", {},
                   {.inputs = {kFlat},
                    .prints = "GLU()",
                    .errors = {LAYER_ERROR(ShapeError, nn::GLU()(ones({2, 3})), "3")}}),
      row<nn::GLU>("GLU/dim", {.dim = -2}),
      row<nn::Softmax>("Softmax", {.dim = 1}, {.inputs = {kFlat}}),
      row<nn::Softmin>("Softmin", {.dim = 0}),
      // PyTorch's file has dim 0 only, also for LogSoftmax.
      row<nn::Softmin>("Softmin/classes", {.dim = 1}, {.inputs = {kFlat}, .golden = false}),
      row<nn::LogSoftmax>("LogSoftmax", {.dim = 0}),
      row<nn::LogSoftmax>("LogSoftmax/classes", {.dim = 1}, {.inputs = {kFlat}, .golden = false}),
      row<nn::Softmax2d>(
          "Softmax2d", {},
          {.inputs = {kImages},
           .errors = {LAYER_ERROR(ShapeError, nn::Softmax2d()(ones({2, 3})), "[Softmax2d]", "f32[2,3]")}}),
  };
}

const bool added = add_rows("activation", table());

}  // namespace
}  // namespace gradus::layers
