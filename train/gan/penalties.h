// Penalties on the gradient of a discriminator's scores with respect to its images, and on the scores.
//
//   const auto recording = gm_d.record();
//   const Tensor fake = gen(z), alpha = rand({real.size(0)});
//   Tensor loss = gan::wgan_d(disc(real), disc(fake)) + 10 * gan::gradient_penalty(disc, real, fake, alpha);
//   gm_d.backward(loss);
//
// The discriminator is a layer or a function of images: [&](const Tensor& x) { return disc(x, scale); }. A
// penalty calls the discriminator once, in full precision also under autocast. The gradient of the penalty
// reaches the parameters of the discriminator, not the images. With batch norm the gradient of each image
// depends on the whole batch: prints a warning, once for each discriminator that is a Module.
#pragma once

#include <functional>

#include "gradus/nn/module.h"

namespace gradus::gan {
namespace internal {

using Discriminator = std::function<Tensor(const Tensor&)>;

// Warns of batch norm in training mode below `m`.
void warn_of_batch_norm(const char* penalty, const nn::Module& m);
// Returns `disc` as a function.
template <class D> Discriminator as_function(const char* penalty, D& disc) {
  if constexpr (std::is_base_of_v<nn::Module, std::remove_cvref_t<D>>) warn_of_batch_norm(penalty, disc);
  return [&disc](const Tensor& x) { return disc(x); };
}

}  // namespace internal

struct GradientPenaltyOptions {
  double target = 1;  // of the gradient's norm
  // Norms over the channels of each pixel instead of over a whole sample.
  bool per_pixel = false;
};

// (|g| - target)^2, a mean over the samples, where g is the gradient of the score's sum at x = alpha real +
// (1 - alpha) fake, and |g| is its norm over a sample. Where g is 0, |g| has the gradient 0.
// Shapes: real, fake [N,...] alike, alpha [N] in [0,1] -> [].
// Errors: ShapeError; ValueError for per_pixel with fewer than 3 dims; what the discriminator throws.
// Source: Gulrajani et al., "Improved training of Wasserstein GANs", NeurIPS 2017.
Tensor gradient_penalty_of(const internal::Discriminator& disc, const Tensor& real, const Tensor& fake,
                           const Tensor& alpha, GradientPenaltyOptions options = {});
template <class D>
Tensor gradient_penalty(D&& disc, const Tensor& real, const Tensor& fake, const Tensor& alpha,
                        GradientPenaltyOptions options = {}) {
  return gradient_penalty_of(internal::as_function("gradient_penalty", disc), real, fake, alpha, options);
}

// |g|^2, a mean over the samples, where g is the gradient of the score's sum at the real images. The usual
// loss adds it times gamma / 2.
// Shapes: real [N,...] -> []. Errors: ShapeError for no dims or N = 0; what the discriminator throws.
// Source: Mescheder et al., "Which training methods for GANs do actually converge?", ICML 2018.
Tensor r1_of(const internal::Discriminator& disc, const Tensor& real);
template <class D> Tensor r1(D&& disc, const Tensor& real) {
  return r1_of(internal::as_function("r1", disc), real);
}
// The same at the fake images.
template <class D> Tensor r2(D&& disc, const Tensor& fake) {
  return r1_of(internal::as_function("r2", disc), fake);
}

// The mean square of the scores of real images, which keeps them near 0: PGGAN adds it times 0.001.
// Shapes: real any -> []. Errors: DTypeError unless floating point.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
Tensor drift(const Tensor& real);

}  // namespace gradus::gan
