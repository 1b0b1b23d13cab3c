// Lazy regularization: a penalty every k steps, in an optimizer step of its own with k times the penalty.
//
//   optim::Adam opt_d(disc.parameters(), gan::lazy_regularization({.lr = 2e-3, .betas = {0, 0.99}}, 16));
//   for (training::Step& s : training) {
//     ... the loss's step, every time
//     if (s.number() % 16 == 1) ... a step on 16 * gamma / 2 * gan::r1(disc, real)
//   }
#pragma once

#include <cstdint>

#include "gradus/optim/optimizers/adam.h"

namespace gradus::gan {

// Returns options for an optimizer that makes k + 1 steps where Adam with the options `adam` would make k: with
// c = k / (k + 1) the learning rate c lr and the betas beta^c.
// Errors: ValueError for k < 1.
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020.
optim::AdamOptions lazy_regularization(optim::AdamOptions adam, int64_t k);

}  // namespace gradus::gan
