// Losses of GANs, of scores (logits) of a discriminator, which are larger for more real images. The
// discriminator minimizes `_d`, the generator `_g`:
//
//   const Tensor real_scores = disc(real), fake_scores = disc(fake);
//   gm_d.backward(gan::hinge_d(real_scores, fake_scores));
//   ...
//   gm_g.backward(gan::hinge_g(disc(gen(z))));
//
// Compute scores before the call: the order of the arguments in hinge_d(disc(real), disc(fake)), and with it
// that of updates of a batch norm's running statistics, depends on the compiler.
// A loss is the mean over the real scores plus the mean over the fake scores, in f32 (f64 for f64 scores), unless
// documented otherwise.
// Shapes: real, fake any, they may differ -> [].
// Errors: DTypeError unless floating point.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::gan {

// Targets of scores: {.real = 0.9} smooths the labels of real images.
struct LabelOptions {
  double real = 1, fake = 0;
};

// Binary cross-entropy of sigmoid(score); the generator's target is `real`.
// Source: Goodfellow et al., NeurIPS 2014 (the non-saturating form).
Tensor vanilla_d(const Tensor& real, const Tensor& fake, LabelOptions labels = {});
Tensor vanilla_g(const Tensor& fake, LabelOptions labels = {});

// softplus(-real) + softplus(fake), and softplus(-fake): equal to vanilla_d and vanilla_g with the default
// labels, as in StyleGAN.
Tensor logistic_d(const Tensor& real, const Tensor& fake);
Tensor logistic_g(const Tensor& fake);

struct LsganOptions {
  double real = 1, fake = 0;  // targets
  double factor = 1;          // 0.5 in the paper, 1 in mmgeneration
};
// With the default targets: factor ((real - 1)^2 + fake^2), and factor (fake - 1)^2.
// Source: Mao et al., ICCV 2017.
Tensor lsgan_d(const Tensor& real, const Tensor& fake, LsganOptions options = {});
Tensor lsgan_g(const Tensor& fake, LsganOptions options = {});

// fake - real, and -fake.
// Source: Arjovsky et al., ICML 2017.
Tensor wgan_d(const Tensor& real, const Tensor& fake);
Tensor wgan_g(const Tensor& fake);

// relu(1 - real) + relu(1 + fake), and -fake.
// Source: Lim and Ye, 2017; Miyato et al., ICLR 2018.
Tensor hinge_d(const Tensor& real, const Tensor& fake);
Tensor hinge_g(const Tensor& fake);

// Relativistic losses of pairs of a real and a fake image: softplus(fake - real), and softplus(real - fake). A mean
// over the pairs. Both take the real scores first; the generator's gradient comes through `fake` alone.
// Shapes: real, fake alike -> [].
// Errors: also ShapeError for different shapes.
// Source: Jolicoeur-Martineau, "The relativistic discriminator", ICLR 2019; as RpGAN in Huang et al., "The GAN is
// dead; long live the GAN! A modern baseline GAN", NeurIPS 2024.
Tensor relativistic_d(const Tensor& real, const Tensor& fake);
Tensor relativistic_g(const Tensor& real, const Tensor& fake);

}  // namespace gradus::gan
