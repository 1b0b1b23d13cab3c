// Growth: the schedule of progressive growing, as a function of the images shown. It has no state to save.
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

struct GrowthPhase {
  int64_t size;        // of the images: a power of two, twice that of the phase before
  int64_t images = 0;  // shown at this size, also during its fade; 0, of the last phase alone: no end
  int64_t batch = 0;   // of all ranks together; 0: the program's
  double lr = 0;       // learning rate; 0: the program's
};

struct GrowthOptions {
  // Images of the fade at the beginning of each phase but the first.
  int64_t fade_images = 600'000;
};

class Growth {
 public:
  struct State {
    int64_t phase;  // index of the phase, from 0
    int64_t size;   // size, batch and lr as in GrowthPhase
    double fade;    // share of the newest blocks, in [0,1]: models::Scale
    int64_t batch;
    double lr;
    // The number of fades that have begun or ended. Optimizers are reset when it changes.
    int64_t changes;

    bool operator==(const State&) const = default;
  };

  // Errors: ValueError for phases that are empty or out of order, sizes that are not 4, 8, 16, ..., phases
  // that are shorter than their fade, negative numbers.
  explicit Growth(std::vector<GrowthPhase> phases, GrowthOptions options = {});

  // Returns the state of a training that has shown `images` images.
  // Errors: ValueError below 0.
  State at(int64_t images) const;
  // Returns the images of all phases together; 0 if the last one has no end.
  int64_t images() const;
  // Returns DataLoaderOptions::global_batch_sizes. Phases without a batch size have `default_batch`.
  std::map<int64_t, int64_t> batch_sizes(int64_t default_batch) const;
  const std::vector<GrowthPhase>& phases() const { return phases_; }
  const GrowthOptions& options() const { return options_; }

 private:
  std::vector<GrowthPhase> phases_;
  GrowthOptions options_;
};

// Returns images for a discriminator of this size, by average pooling. During a fade they are blended with
// images of half the size, as the networks blend their outputs.
// Shapes: x [N,C,S,S] -> [N,C,size,size], S a multiple of size.
// Errors: ShapeError unless S is a multiple of size; ValueError for a fade outside [0,1].
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
Tensor scaled_images(const Tensor& x, int64_t size, double fade = 1);

}  // namespace gradus::gan
