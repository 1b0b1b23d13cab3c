// Muon by raw ops, one parameter at a time, on the parameter's device.
#include "gradus/optim/optimizers/muon.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::optim {

template class OptimizerWith<MuonOptions>;

namespace {

double adjusted_lr(const MuonOptions& o, const Tensor& p) {
  const double rows = double(p.size(0)), columns = double(p.size(1));
  switch (o.adjust_lr_fn) {
    case AdjustLR::kOriginal:
      return o.lr * std::sqrt(std::max(1.0, rows / columns));
    case AdjustLR::kMatchRMSAdamW:
      return o.lr * 0.2 * std::sqrt(std::max(rows, columns));
    case AdjustLR::kSpectralUnclamped:
      break;
  }
  return o.lr * std::sqrt(rows / columns);
}

// Returns U f(S) V^T for u = U S V^T, with f(s) near 1. The iteration is on the side with the smaller s.
Tensor orthogonalize(const Tensor& u, const MuonOptions& o) {
  const bool transpose = u.size(0) > u.size(1);
  Tensor x = u.dtype() == DType::kF64 ? u : raw::to(u, DType::kBF16);
  if (transpose) x = raw::transpose(x, 0, 1);
  x = raw::div(x, raw::clamp(raw::norm(x), o.eps, std::numeric_limits<double>::infinity()));
  const auto [a, b, c] = o.ns_coefficients;
  for (int64_t i = 0; i < o.ns_steps; ++i) {
    const Tensor s = raw::matmul(x, raw::transpose(x, 0, 1));
    const Tensor polynomial = raw::add(raw::mul(s, b), raw::matmul(s, s), c);
    x = raw::add(raw::matmul(polynomial, x), x, a);
  }
  return transpose ? raw::transpose(x, 0, 1) : x;
}

void update(const raw::StepItem& item, const MuonOptions& o) {
  if (item.param.numel() == 0) return;
  const DType dtype = raw::step_dtype(item.param.dtype());
  const Tensor &buffer = item.state[0], g = raw::to(item.grad, dtype);
  raw::lerp_(buffer, g, 1 - o.momentum);
  const Tensor direction = orthogonalize(o.nesterov ? raw::lerp(g, buffer, o.momentum) : buffer, o);
  const Tensor decayed = raw::mul(raw::to(item.param, dtype), 1 - o.lr * o.weight_decay);
  raw::copy_(item.param, raw::add(decayed, raw::to(direction, dtype), -adjusted_lr(o, item.param)));
}

}  // namespace

void MuonOptions::check() const {
  check_not_negative("Muon",
                     {{"lr", lr}, {"weight_decay", weight_decay}, {"momentum", momentum}, {"eps", eps}});
  for (double coefficient : ns_coefficients)
    check_option(std::isfinite(coefficient), "Muon", "ns_coefficients", "finite", coefficient);
  check_option(ns_steps >= 0 && ns_steps < 100, "Muon", "ns_steps", "in [0, 100)", double(ns_steps));
  check_option(adjust_lr_fn >= AdjustLR::kOriginal && adjust_lr_fn <= AdjustLR::kSpectralUnclamped, "Muon",
               "adjust_lr_fn", "kOriginal (0), kMatchRMSAdamW (1) or kSpectralUnclamped (2)",
               double(adjust_lr_fn));
}

Muon::Muon(const std::vector<Tensor>& params, MuonOptions options) { add_param_group(params, options); }

void Muon::check_param(const Tensor& param) const {
  if (param.dim() != 2)
    throw ValueError(kind(), "expected parameters with 2 dims, got ", describe(param),
                     "; step the others by another optimizer");
}

void Muon::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::for_each_batch(items, [&](const std::vector<raw::StepItem>& batch) {
    for (const raw::StepItem& item : batch) update(item, options(group));
  });
}

}  // namespace gradus::optim
