// Activation layers: each applies the op of its name to every element (Softmax and LogSoftmax along one
// dimension).
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct NoOptions {};

// max(x, 0)
class ReLU final : public LayerWith<NoOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;

 private:
  Tensor forward_temporary(Tensor&& x) override;
};

struct LeakyReLUOptions {
  double negative_slope = 0.01;
};
// x where x > 0, else negative_slope x
class LeakyReLU final : public LayerWith<LeakyReLUOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

// 1 / (1 + exp(-x))
class Sigmoid final : public LayerWith<NoOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

class Tanh final : public LayerWith<NoOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

// x Phi(x), Phi the normal distribution function
class GELU final : public LayerWith<NoOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

// x sigmoid(x)
class SiLU final : public LayerWith<NoOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

struct SoftmaxOptions {
  Required<int64_t> dim;
};
// exp(x) / sum exp(x) along `dim`
class Softmax final : public LayerWith<SoftmaxOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};
// log softmax(x) along `dim`
class LogSoftmax final : public LayerWith<SoftmaxOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

}  // namespace gradus::nn
