// Flow matching: trains a velocity v(x, t) whose ordinary differential equation dx/dt = v(x, t) moves noise (t = 0) to
// images (t = 1), and solves the equation.
//
//   const auto velocity = [&](const Tensor& x, const Tensor& t) { return net(x, t); };
//   const Tensor times = flow::logit_normal_times(randn({images.size(0)}));
//   gm.backward(flow::matching_loss(velocity, images, randn_like(images), times));
//   ...
//   Tensor samples = flow::sample(velocity, randn({64, 3, 32, 32}), {.steps = 20});
//
// Source: Lipman et al., "Flow matching for generative modeling", ICLR 2023; Liu et al., "Flow straight and fast:
// learning to generate and transfer data with rectified flow", ICLR 2023.
#pragma once

#include <functional>

#include "gradus/tensor/tensor.h"

namespace gradus::flow {

// A function of x [N,...] and times t [N] that returns a tensor of x's shape.
using Velocity = std::function<Tensor(const Tensor& x, const Tensor& t)>;

// |v(x_t, t) - (images - noise)|^2, a mean over all elements, where x_t = (1 - t) noise + t images. Computed in f32, or
// in f64 for f64 images.
// Shapes: images, noise [N,...] alike, times [N] in [0,1] -> [].
// Errors: ShapeError for other shapes, also of the velocity; DTypeError unless floating point.
Tensor matching_loss(const Velocity& velocity, const Tensor& images, const Tensor& noise,
                     const Tensor& times);

struct LogitNormalOptions {
  double mean = 0, stddev = 1;  // of the times' logits
};
// Returns times in (0,1) from standard normal numbers: sigmoid(mean + stddev normal). Times around 0.5, where the
// velocity is the most difficult to learn, are more frequent than others.
// Errors: ValueError for a stddev below 0.
// Source: Esser et al., "Scaling rectified flow transformers for high-resolution image synthesis", ICML 2024.
Tensor logit_normal_times(const Tensor& normal, LogitNormalOptions options = {});

// Replaces labels by that of no class, `classes`, where `dropped` is true. A network that is trained on them also
// predicts the unconditional velocity, for SampleOptions::guidance; it must accept classes + 1 labels.
// Shapes: integer labels [N], bool dropped [N] -> [N].
// Errors: ShapeError for shapes that do not broadcast.
// Source: Ho, Salimans, "Classifier-free diffusion guidance", 2022.
Tensor drop_labels(const Tensor& labels, const Tensor& dropped, int64_t classes);

// Runge-Kutta methods of order 1, 2, 2 and 4. A step evaluates the velocity 1, 2, 2 and 4 times; with guidance, and the
// unconditional velocity as often.
enum class Method { kEuler, kMidpoint, kHeun, kRungeKutta4 };

struct SampleOptions {
  int64_t steps = 20;  // of equal size
  Method method = Method::kMidpoint;
  // Solves with unconditional + guidance (velocity - unconditional); a guidance above 1 makes images more typical of
  // their class, and less diverse.
  double guidance = 1;
  Velocity unconditional = {};  // of all classes; for a guidance other than 1
};

// Returns x(1) for x(0) = noise. Call it under no_record() unless gradients are needed.
// Shapes: noise [N,...] -> the same.
// Errors: ValueError for steps below 1, or a guidance without unconditional velocity; ShapeError for a velocity of
// another shape.
Tensor sample(const Velocity& velocity, const Tensor& noise, const SampleOptions& options = {});

}  // namespace gradus::flow
