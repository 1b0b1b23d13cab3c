// Gradient clipping: collects the gradients, of sparse ones the stored rows, and runs multi-tensor kernels
// (tensor/ops/optim_step.h) that compute the norm and multiply by min(1, max_norm / (norm + 1e-6)), or clamp,
// in place. Only error_if_nonfinite waits for a GPU.
#include "gradus/optim/clip_grad.h"

#include <cmath>

#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/optim/scaled_gradient.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {
namespace {
// Returns the elements of all defined gradients. Errors: StateError if a GradScaler has scaled one.
std::vector<Tensor> grads_of(const char* op, const std::vector<Tensor>& params) {
  std::vector<Tensor> grads;
  for (const Tensor& p : params) {
    Tensor g = p.grad();
    if (!g.defined()) continue;
    if (const internal::Factor* factor = internal::factor_of(g))
      throw StateError(op, "would clip gradients that a GradScaler has multiplied", factor->text(),
                       ": let the scaler clip, scaler.step(opt, {.clip_norm = ...}), or call "
                       "scaler.unscale_(opt) first");
    grads.push_back(autograd::elements_of(g));
  }
  return grads;
}
}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, ClipNormOptions options) {
  if (!(max_norm >= 0)) throw ValueError("clip_grad_norm_", "expected max_norm >= 0, got ", max_norm);
  if (!(options.norm_type > 0))
    throw ValueError("clip_grad_norm_", "expected norm_type > 0, got ", options.norm_type);
  const std::vector<Tensor> grads = grads_of("clip_grad_norm_", params);
  const Tensor norm = raw::norm_of(grads, options.norm_type);
  if (options.error_if_nonfinite && !std::isfinite(norm.item<double>()))
    throw ValueError("clip_grad_norm_", "the norm of the gradients is ", norm.item<double>(),
                     "; nothing was clipped");
  raw::clip_by_norm_(grads, norm, max_norm);
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& params, double clip_value) {
  if (!(clip_value >= 0)) throw ValueError("clip_grad_value_", "expected clip_value >= 0, got ", clip_value);
  raw::clip_by_value_(grads_of("clip_grad_value_", params), clip_value);
}

}  // namespace gradus::optim
