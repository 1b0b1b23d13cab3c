#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {

static const bool added =
    add_golden_layers("activation", {
                                        golden<nn::ReLU>("ReLU"),
                                        golden<nn::ReLU6>("ReLU6"),
                                        golden<nn::Sigmoid>("Sigmoid"),
                                        golden<nn::LogSigmoid>("LogSigmoid"),
                                        golden<nn::Tanh>("Tanh"),
                                        golden<nn::Tanhshrink>("Tanhshrink"),
                                        golden<nn::Softsign>("Softsign"),
                                        golden<nn::SiLU>("SiLU"),
                                        golden<nn::Mish>("Mish"),
                                        golden<nn::SELU>("SELU"),
                                        golden<nn::Hardsigmoid>("Hardsigmoid"),
                                        golden<nn::Hardswish>("Hardswish"),
                                        golden<nn::LeakyReLU>("LeakyReLU"),
                                        golden<nn::LeakyReLU>("LeakyReLU/slope", {.negative_slope = 0.2}),
                                        golden<nn::PReLU>("PReLU"),
                                        golden<nn::PReLU>("PReLU/channels", {.num_parameters = 3}),
                                        golden<nn::RReLU>("RReLU"),
                                        golden<nn::ELU>("ELU"),
                                        golden<nn::ELU>("ELU/alpha", {.alpha = 0.7}),
                                        golden<nn::CELU>("CELU"),
                                        golden<nn::CELU>("CELU/alpha", {.alpha = 0.5}),
                                        golden<nn::GELU>("GELU"),
                                        golden<nn::GELU>("GELU/tanh", {.approximate = Gelu::kTanh}),
                                        golden<nn::Softplus>("Softplus"),
                                        golden<nn::Softplus>("Softplus/options", {.beta = 2, .threshold = 3}),
                                        golden<nn::Softplus>("Softplus/late", {.threshold = 30}),
                                        golden<nn::Hardtanh>("Hardtanh"),
                                        golden<nn::Hardtanh>("Hardtanh/bounds", {.low = -0.5, .high = 2}),
                                        golden<nn::Hardshrink>("Hardshrink"),
                                        golden<nn::Hardshrink>("Hardshrink/lambda", {.lambda = 1.3}),
                                        golden<nn::Softshrink>("Softshrink"),
                                        golden<nn::Softshrink>("Softshrink/lambda", {.lambda = 1.3}),
                                        golden<nn::Threshold>("Threshold", {.threshold = 0.4, .value = -7}),
                                        golden<nn::GLU>("GLU"),
                                        golden<nn::GLU>("GLU/dim", {.dim = -2}),
                                        golden<nn::Softmax>("Softmax", {.dim = 1}),
                                        golden<nn::Softmin>("Softmin", {.dim = 0}),
                                        golden<nn::LogSoftmax>("LogSoftmax", {.dim = 0}),
                                        golden<nn::Softmax2d>("Softmax2d"),
                                    });

}  // namespace gradus::golden
