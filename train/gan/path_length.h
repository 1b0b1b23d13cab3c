// Path length penalty of StyleGAN2: changes of a style vector should change the image by the same amount everywhere.
//
//   gan::PathLengthPenalty path_length;                             // a part of the training's checkpoint
//   ...
//   const auto recording = gm_g.record();
//   const Tensor ws = gen.mapping(z), images = gen.synthesis(ws);
//   gm_g.backward(2 * path_length(images, ws, randn_like(images)));
#pragma once

#include "gradus/distributed/group/group.h"
#include "gradus/optim/state.h"
#include "gradus/tensor/tensor.h"

namespace gradus::gan {

// Returns sqrt(mean over the layers l of |J_l^T y|^2), where J_l is the derivative of an image with respect to the
// style ws[:, l], and y = noise / sqrt(H W). Call it in the recording that recorded ws and images. Lengths are
// differentiable; noise is a constant.
// Shapes: images [N,C,H,W], ws [N,L,D], noise, normally distributed, like images -> [N].
// Errors: ShapeError; StateError unless an open recording follows images and ws.
Tensor path_lengths(const Tensor& images, const Tensor& ws, const Tensor& noise);

struct PathLengthPenaltyOptions {
  double decay = 0.01;     // weight of a new mean in the running mean
  dist::Group group = {};  // ranks whose lengths are averaged
};

// Computes lengths l, updates the running mean, mean += decay (mean of l over all ranks - mean), and returns the
// mean over this rank's images of (l - mean)^2. The gradient also flows through the new mean, to the lengths of all
// ranks. Collective: all ranks of the group call with batches of one size, and their gradients are averaged.
// Lengths that are not finite leave the running mean as it is.
// Errors: those of path_lengths; ValueError, from the constructor, for a decay outside [0,1].
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020.
class PathLengthPenalty {
 public:
  explicit PathLengthPenalty(PathLengthPenaltyOptions options = {});
  Tensor operator()(const Tensor& images, const Tensor& ws, const Tensor& noise);

  // Returns the running mean [], 0 before the first call.
  const Tensor& running_mean() const { return mean_; }
  optim::State state_dict() const;
  // Errors: ValueError for a state of other entries; the penalty is then unchanged.
  void load_state_dict(const optim::State& state);

 private:
  PathLengthPenaltyOptions options_;
  Tensor mean_;  // f64
};

}  // namespace gradus::gan
