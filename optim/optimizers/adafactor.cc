// Adafactor by raw ops, one parameter at a time, in f32 or f64 on the parameter's device. Norms stay on the
// device, so the host does not wait.
#include "gradus/optim/optimizers/adafactor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/reduce.h"

namespace gradus::optim {

template class OptimizerWith<AdafactorOptions>;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double machine_epsilon(DType t) {
  switch (t) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF32:
      return 0x1p-23;
    case DType::kF16:
      return 0x1p-10;
    default:
      return 0x1p-7;  // bf16
  }
}

Tensor square(const Tensor& x) { return raw::unary<functors::Square>(x); }
Tensor rms(const Tensor& x) { return raw::unary<functors::Sqrt>(raw::mean(square(x))); }
Tensor at_least(const Tensor& x, double low) { return raw::clamp(x, low, kInfinity); }

// Moves the state's averages by the gradient g, and returns the estimate v of g^2.
Tensor second_moment(const raw::StepItem& item, const Tensor& g, double weight, double eps) {
  const auto& [row_var, col_var, variance] = item.state;
  const Tensor squares = square(g);
  if (variance.defined()) {
    raw::lerp_(variance, squares, weight);
    return variance;
  }
  raw::lerp_(row_var, raw::mean(squares, -1, true), weight);
  raw::lerp_(col_var, raw::mean(squares, -2, true), weight);
  return raw::div(raw::mul(row_var, col_var), at_least(raw::mean(row_var, -2, true), eps));
}

void update(const raw::StepItem& item, const AdafactorOptions& o) {
  if (item.param.numel() == 0) return;
  const DType dtype = raw::step_dtype(item.param.dtype());
  const double eps = o.eps[0] < 0 ? machine_epsilon(item.param.dtype()) : o.eps[0];
  Tensor p = raw::to(item.param, dtype), g = raw::to(item.grad, dtype);
  if (o.maximize) g = raw::unary<functors::Neg>(g);
  const Tensor v = second_moment(item, g, std::pow(double(item.step), o.beta2_decay), eps);
  const Tensor u = raw::mul(raw::unary<functors::Rsqrt>(at_least(v, eps * eps)), g);
  const double rho = std::min(o.lr, 1 / std::sqrt(double(item.step)));
  const Tensor scale =
      raw::div(raw::mul(at_least(rms(p), o.eps[1]), rho), at_least(raw::div(rms(u), o.d), 1));
  if (o.weight_decay != 0) p = raw::mul(p, 1 - o.lr * o.weight_decay);
  raw::copy_(item.param, raw::sub(p, raw::mul(u, scale)));
}

}  // namespace

void AdafactorOptions::check() const {
  check_not_negative("Adafactor", {{"lr", lr}, {"eps2", eps[1]}, {"weight_decay", weight_decay}});
  check_option(beta2_decay <= 0, "Adafactor", "beta2_decay", "<= 0", beta2_decay);
  check_option(eps[0] >= 0 || eps[0] == -1, "Adafactor", "eps1", ">= 0, or -1 for the machine epsilon",
               eps[0]);
  check_option(d >= 1, "Adafactor", "d", ">= 1", d);
}

Adafactor::Adafactor(const std::vector<Tensor>& params, AdafactorOptions options) {
  add_param_group(params, options);
}

std::optional<Shape> Adafactor::state_shape(size_t state, const Tensor& param) const {
  const int n = param.dim();
  Shape shape = param.shape();
  if ((state == 2) == (n > 1)) return {};
  if (state == 0) shape[n - 1] = 1;
  if (state == 1) shape[n - 2] = 1;
  return shape;
}

void Adafactor::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::for_each_batch(items, [&](const std::vector<raw::StepItem>& batch) {
    for (const raw::StepItem& item : batch) update(item, options(group));
  });
}

}  // namespace gradus::optim
