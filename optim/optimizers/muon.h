// Muon: momentum that is orthogonalized, for the matrices of hidden layers, as torch.optim.Muon.
#pragma once

#include <array>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

// The factor of lr for a parameter [rows,columns].
enum class AdjustLR {
  kOriginal,           // sqrt(max(1, rows / columns))
  kMatchRMSAdamW,      // 0.2 sqrt(max(rows, columns))
  kSpectralUnclamped,  // sqrt(rows / columns)
};

struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;  // decoupled: p *= 1 - lr weight_decay
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};  // of the Newton-Schulz iteration
  double eps = 1e-7;                                                  // lower bound of the norm
  int64_t ns_steps = 5;                                               // iterations, below 100
  AdjustLR adjust_lr_fn = AdjustLR::kOriginal;

  // Errors: ValueError for an option out of range.
  void check() const;
  static void each(auto& o, auto&& f) {
    f("lr", o.lr), f("weight_decay", o.weight_decay), f("momentum", o.momentum), f("nesterov", o.nesterov);
    f("ns_a", o.ns_coefficients[0]), f("ns_b", o.ns_coefficients[1]), f("ns_c", o.ns_coefficients[2]);
    f("eps", o.eps), f("ns_steps", o.ns_steps), f("adjust_lr_fn", o.adjust_lr_fn);
  }
};
extern template class OptimizerWith<MuonOptions>;

// For a matrix p with gradient g:
//   b += (1 - momentum) (g - b);  u = g + momentum (b - g) with nesterov, else b;
//   p -= lr weight_decay p;  p -= adjusted lr * orthogonalize(u).
// orthogonalize: x = u / max(|u|, eps), then ns_steps times, with s = x x^T: x = a x + (b s + c s s) x, of the
// transposed matrix if it has more rows than columns. The iteration is in bf16, as in PyTorch; for f64
// parameters in f64. Other parameters (biases, embeddings) are for another optimizer.
// On CUDA devices a step is several kernels per parameter; it cannot be captured.
// Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).
class Muon final : public OptimizerWith<MuonOptions> {
 public:
  // Errors, also of add_param_group: ValueError for a parameter that is not a matrix.
  explicit Muon(const std::vector<Tensor>& params, MuonOptions options = {});

 private:
  const char* kind() const override { return "Muon"; }
  std::vector<const char*> state_names(const MuonOptions&) const override { return {"momentum_buffer"}; }
  void check_param(const Tensor& param) const override;
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
};

}  // namespace gradus::optim
