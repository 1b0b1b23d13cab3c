// Growth: the schedule of a GAN whose images grow, as a function of the images shown. Nothing of it has to be
// saved, and a resumed training is where it was.
//
//   const gan::Growth growth({{.size = 4, .images = 20'000}, {.size = 8, .images = 40'000}, {.size = 16}},
//                            {.fade_images = 20'000});
//   const gan::Growth::State at = growth.at(images);  // shown before the step
//   const models::Scale scale = {.size = at.size, .fade = at.fade};
//   disc(gan::scaled_images(real, at.size, at.fade), scale);
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::gan {

// A size, and how long it is trained.
struct GrowthPhase {
  int64_t size;        // of the images: a power of two, twice that of the phase before
  int64_t images = 0;  // to show at this size, while it fades in as well; the last phase may have 0: no end
  int64_t batch = 0;   // of all ranks together; 0: whatever the program has
  double lr = 0;       // learning rate; 0: whatever the program has
};

struct GrowthOptions {
  // At the begin of each phase but the first, so many images fade the new size in.
  int64_t fade_images = 600'000;
};

class Growth {
 public:
  struct State {
    int64_t phase;  // from 0
    int64_t size;
    double fade;  // share of the newest blocks, in [0,1]: models::Scale
    int64_t batch;
    double lr;
    // The number of fades that have begun or ended so far. When it changes, optimizers begin anew.
    int64_t turns;

    bool operator==(const State&) const = default;
  };

  // Errors: ValueError for phases that are empty or out of order, sizes that are not 4, 8, 16, ..., phases
  // that are shorter than their fade, negative numbers.
  explicit Growth(std::vector<GrowthPhase> phases, GrowthOptions options = {});

  // Returns where a training is that has shown so many images.
  // Errors: ValueError below 0.
  State at(int64_t images) const;
  // Returns the images of all phases together; 0 when the last one has no end.
  int64_t images() const;
  // Returns the batch sizes by the images shown before, for DataLoaderOptions::global_batch_sizes. Phases
  // without one have `otherwise`.
  std::map<int64_t, int64_t> batch_sizes(int64_t otherwise) const;
  const std::vector<GrowthPhase>& phases() const { return phases_; }
  const GrowthOptions& options() const { return options_; }

 private:
  std::vector<GrowthPhase> phases_;
  GrowthOptions options_;
};

// Returns images for a discriminator that has grown so far: means over squares of pixels. While a size fades
// in, they are blended with images of half the size in the same proportion as the networks' results.
// Shapes: x [N,C,S,S] -> [N,C,size,size], S a multiple of size.
// Errors: ShapeError unless the image is as large as the size, or a multiple; ValueError for a fade that is
// not in [0,1].
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
Tensor scaled_images(const Tensor& x, int64_t size, double fade = 1);

}  // namespace gradus::gan
