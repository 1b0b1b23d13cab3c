// Losses of GANs (formulas in losses.h), from differentiable ops. Every loss is a mean over scores in f32, or
// in f64 for f64 scores.
#include "gradus/train/gan/losses.h"

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/losses/pointwise_losses.h"
#include "gradus/autograd/ops/reduce.h"

namespace gradus::gan {
namespace {

// Returns 16-bit scores in f32, in which the mean is precise, and others unchanged. `loss`: the op in errors.
Tensor scores(const char* loss, const Tensor& x) {
  if (!is_floating(x.dtype()))
    throw DTypeError(loss, "expected scores of a floating type, got ", describe(x));
  return x.dtype() == DType::kF64 ? x : to(x, DType::kF32);
}

// Returns the mean of softplus(low - high) over the elements, which pair.
Tensor pair_loss(const char* loss, const Tensor& low, const Tensor& high) {
  if (low.shape() != high.shape())
    throw ShapeError(loss, "expected real and fake alike, got ", describe(low), " and ", describe(high));
  return mean(softplus(scores(loss, low) - scores(loss, high)));
}

}  // namespace

Tensor vanilla_d(const Tensor& real, const Tensor& fake, LabelOptions labels) {
  return binary_cross_entropy_with_logits_to(scores("vanilla_d", real), labels.real) +
         binary_cross_entropy_with_logits_to(scores("vanilla_d", fake), labels.fake);
}
Tensor vanilla_g(const Tensor& fake, LabelOptions labels) {
  return binary_cross_entropy_with_logits_to(scores("vanilla_g", fake), labels.real);
}

Tensor logistic_d(const Tensor& real, const Tensor& fake) {
  return mean(softplus(-scores("logistic_d", real))) + mean(softplus(scores("logistic_d", fake)));
}
Tensor logistic_g(const Tensor& fake) { return mean(softplus(-scores("logistic_g", fake))); }

Tensor lsgan_d(const Tensor& real, const Tensor& fake, LsganOptions o) {
  return o.factor *
         (mse_loss_to(scores("lsgan_d", real), o.real) + mse_loss_to(scores("lsgan_d", fake), o.fake));
}
Tensor lsgan_g(const Tensor& fake, LsganOptions o) {
  return o.factor * mse_loss_to(scores("lsgan_g", fake), o.real);
}

Tensor wgan_d(const Tensor& real, const Tensor& fake) {
  return mean(scores("wgan_d", fake)) - mean(scores("wgan_d", real));
}
Tensor wgan_g(const Tensor& fake) { return -mean(scores("wgan_g", fake)); }

Tensor hinge_d(const Tensor& real, const Tensor& fake) {
  return mean(relu(1 - scores("hinge_d", real))) + mean(relu(1 + scores("hinge_d", fake)));
}
Tensor hinge_g(const Tensor& fake) { return -mean(scores("hinge_g", fake)); }

Tensor relativistic_d(const Tensor& real, const Tensor& fake) {
  return pair_loss("relativistic_d", fake, real);
}
Tensor relativistic_g(const Tensor& real, const Tensor& fake) {
  return pair_loss("relativistic_g", real, fake);
}

}  // namespace gradus::gan
