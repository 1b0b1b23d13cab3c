// Adafactor: Adam with second moments that take the memory of a row and a column of each matrix, as
// torch.optim.Adafactor.
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

struct AdafactorOptions {
  double lr = 1e-2;
  double beta2_decay = -0.8;  // <= 0
  // eps[0]: lower bound of mean(row_var) and of sqrt(v); -1: the machine epsilon of the parameter's dtype.
  // eps[1]: lower bound of the parameter's root mean square.
  std::array<double, 2> eps = {-1, 1e-3};
  double d = 1;             // >= 1: bound of the update's root mean square
  double weight_decay = 0;  // decoupled: p *= 1 - lr weight_decay
  bool maximize = false;

  // Errors: ValueError for an option out of range.
  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("beta2_decay", o.beta2_decay), f("eps1", o.eps[0]), f("eps2", o.eps[1]), f("d", o.d);
    f("weight_decay", o.weight_decay), f("maximize", o.maximize);
  }
};
extern template class OptimizerWith<AdafactorOptions>;

// For a parameter p[...,r,c] with gradient g (-grad with `maximize`), and b = t^beta2_decay:
//   row_var[...,r,1] += b (mean(g^2, dim c) - row_var);  col_var[...,1,c] += b (mean(g^2, dim r) - col_var);
//   v = row_var col_var / max(mean(row_var, dim r), eps[0]).
// For a vector or a number: variance = v += b (g^2 - v). Then with rms(x) = sqrt(mean(x^2)):
//   u = g / sqrt(max(v, eps[0]^2));  a = max(eps[1], rms(p)) min(lr, 1 / sqrt(t));
//   p -= lr weight_decay p;  p -= a / max(1, rms(u) / d) u.
// On CUDA devices a step is several kernels per parameter; it cannot be captured.
// Source: Shazeer and Stern, ICML 2018 (arXiv:1804.04235).
class Adafactor final : public OptimizerWith<AdafactorOptions> {
 public:
  explicit Adafactor(const std::vector<Tensor>& params, AdafactorOptions options = {});

 private:
  const char* kind() const override { return "Adafactor"; }
  std::vector<const char*> state_names(const AdafactorOptions&) const override {
    return {"row_var", "col_var", "variance"};
  }
  std::optional<Shape> state_shape(size_t state, const Tensor& param) const override;
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
};

}  // namespace gradus::optim
