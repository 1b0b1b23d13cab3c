// Losses of GANs. A discriminator gives each image a score: a logit, the larger, the more real. `_d` is what
// the discriminator minimizes, `_g` what the generator does:
//
//   const Tensor real_scores = disc(real), fake_scores = disc(fake);
//   gm_d.backward(gan::hinge_d(real_scores, fake_scores));
//   ...
//   gm_g.backward(gan::hinge_g(disc(gen(z))));
//
// C++ leaves open which argument of a call it computes first: hinge_d(disc(real), disc(fake)) moves the
// running statistics of a batch norm in an order that depends on the compiler.
// Each is a mean over all elements of the scores, and a sum of the term of real and that of generated images.
// Under autocast they are computed in f32.
// Shapes: real, fake any, they may differ -> [].
// Errors: DTypeError unless floating point.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::gan {

// What a score is compared with: {.real = 0.9} smooths the labels of real images.
struct LabelOptions {
  double real = 1, fake = 0;
};

// Binary cross-entropy of sigmoid(score). The generator wants its images to be taken for real ones.
// Source: Goodfellow et al., NeurIPS 2014 (the non-saturating form).
Tensor vanilla_d(const Tensor& real, const Tensor& fake, LabelOptions labels = {});
Tensor vanilla_g(const Tensor& fake, LabelOptions labels = {});

// softplus(-real) + softplus(fake), and softplus(-fake): vanilla's, as StyleGAN writes them.
Tensor logistic_d(const Tensor& real, const Tensor& fake);
Tensor logistic_g(const Tensor& fake);

struct LsganOptions {
  double real = 1, fake = 0;  // what scores are compared with
  double factor = 1;          // 0.5 in the paper, 1 in mmgeneration
};
// factor ((real - 1)^2 + fake^2), and factor (fake - 1)^2.
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

}  // namespace gradus::gan
