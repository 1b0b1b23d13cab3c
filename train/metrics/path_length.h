// The perceptual path length (PPL) of a generator: how fast its images change between two latents.
//
//   metrics::PerceptualPathLength ppl;
//   for (int64_t i = 0; i < batches; ++i)
//     ppl.update(gen, lpips, randn({16, 512}), randn({16, 512}), rand({16}));
//   std::cout << ppl.compute();
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct PerceptualPathLengthOptions {
  enum class Space {
    kZ,  // normal latents: spherical interpolation, to vectors of length sqrt(D)
    kW,  // intermediate latents of a style generator: linear interpolation
  };
  Space space = Space::kZ;
  double epsilon = 1e-4;  // the step along the path
  bool crop = false;      // compares rows 3/8 to 7/8 and columns 2/8 to 6/8, where aligned faces are
  dist::Group group = {};
};

// The mean over pairs of latents a, b of
//   distance(gen(interpolate(a, b, t)), gen(interpolate(a, b, t + epsilon))) / epsilon^2
// without the values below the 1st and above the 99th percentile.
// Source: Karras et al., "A style-based generator architecture for generative adversarial networks", CVPR 2019.
class PerceptualPathLength {
 public:
  // Returns images in [-1,1] of latents. Shapes: [N,...] -> [N,C,H,W].
  using Generator = std::function<Tensor(const Tensor& latents)>;
  // Returns distances of pairs of images, as models::LPIPS. Shapes: [N,C,H,W] twice -> [N].
  using Distance = std::function<Tensor(const Tensor& a, const Tensor& b)>;

  // Errors: ValueError unless epsilon is above 0.
  explicit PerceptualPathLength(PerceptualPathLengthOptions options = {});

  // Adds a batch of pairs, without recording. Both calls of the generator draw the same random numbers, such as noise.
  // Images above 256 pixels are reduced to 256 by averages. t is 0 for the ends of the paths, or uniform in [0,1] for
  // the full paths.
  // Shapes: a, b [N,D], kW also [N,L,D]; t [N].
  // Errors: ShapeError; ValueError for a t outside [0,1].
  void update(const Generator& generate, const Distance& distance, const Tensor& a, const Tensor& b,
              const Tensor& t);
  // Removes all batches of this rank.
  void reset() { distances_.clear(); }
  // Returns the mean over the pairs of all ranks: for any number of ranks equal. NaN without pairs. Collective.
  double compute() const;

 private:
  Tensor interpolate(const Tensor& a, const Tensor& b, const Tensor& t) const;
  Tensor prepared(const Tensor& images) const;

  PerceptualPathLengthOptions options_;
  std::vector<double> distances_;
};

}  // namespace gradus::metrics
