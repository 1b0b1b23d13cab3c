// Growth: a pure function from the number of real images shown so far to the phase of progressive growing (image
// size, fade, batch size, learning rate). Each phase doubles the size. At the beginning of each phase but the
// first, the new blocks of the networks are faded in linearly over fade_images images. scaled_images() resizes
// real images to the current size. Contracts: growth.h.
#include "gradus/train/gan/growth.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/images/interpolate.h"
#include "gradus/autograd/ops/images/pool.h"

namespace gradus::gan {

Growth::Growth(std::vector<GrowthPhase> phases, GrowthOptions options)
    : phases_(std::move(phases)), options_(options) {
  if (phases_.empty()) throw ValueError("Growth", "expected at least one phase");
  if (options_.fade_images < 0)
    throw ValueError("Growth", "expected fade_images >= 0, got ", options_.fade_images);
  int64_t remaining = std::numeric_limits<int64_t>::max();  // so that the sum of all phases fits
  for (size_t i = 0; i < phases_.size(); ++i) {
    const GrowthPhase& p = phases_[i];
    if (p.size < 4 || !std::has_single_bit(static_cast<uint64_t>(p.size)))
      throw ValueError("Growth", "expected a size of 4, 8, 16, ..., got ", p.size, " in phase ", i);
    if (i > 0 && p.size != 2 * phases_[i - 1].size)
      throw ValueError("Growth", "expected twice the size ", phases_[i - 1].size, " of phase ", i - 1,
                       " in phase ", i, ", got ", p.size);
    // The last phase may have 0 images: it then has no end. Other phases need at least the images of their fade.
    const bool endless = p.images == 0 && i + 1 == phases_.size();
    const int64_t min_images = endless ? 0 : std::max<int64_t>(i > 0 ? options_.fade_images : 0, 1);
    if (p.images < min_images)
      throw ValueError("Growth", "expected at least ", min_images, " images in phase ", i, " of ", p.size,
                       " pixels, got ", p.images, ": its fade takes ", i > 0 ? options_.fade_images : 0);
    if (p.images > remaining) throw ValueError("Growth", "expected fewer images in all");
    remaining -= p.images;
    if (p.batch < 0 || !(p.lr >= 0))
      throw ValueError("Growth", "expected batch, lr >= 0, got ", p.batch, " and ", p.lr, " in phase ", i);
  }
}

Growth::State Growth::at(int64_t images) const {
  if (images < 0) throw ValueError("Growth", "expected a number of images >= 0, got ", images);
  size_t i = 0;  // the phase; `images` becomes the number of images shown in that phase
  while (i + 1 < phases_.size() && images >= phases_[i].images) images -= phases_[i++].images;
  const GrowthPhase& p = phases_[i];
  const bool fades = i > 0 && images < options_.fade_images;
  const auto phase = static_cast<int64_t>(i);
  return {.phase = phase,
          .size = p.size,
          .fade = fades ? double(images) / double(options_.fade_images) : 1.0,
          .batch = p.batch,
          .lr = p.lr,
          // Each phase but the first begins and ends one fade.
          .changes = 2 * phase - (fades ? 1 : 0)};
}

int64_t Growth::images() const {
  int64_t all = 0;
  for (const GrowthPhase& p : phases_) all += p.images;
  return phases_.back().images == 0 ? 0 : all;
}

// Returns the batch size of each phase by the number of images shown before the phase.
std::map<int64_t, int64_t> Growth::batch_sizes(int64_t default_batch) const {
  std::map<int64_t, int64_t> sizes;
  int64_t shown = 0;
  for (const GrowthPhase& p : phases_) {
    sizes[shown] = p.batch > 0 ? p.batch : default_batch;
    shown += p.images;
  }
  return sizes;
}

// Returns fade * y + (1 - fade) * enlarged(pooled(y)), where y is x average-pooled to `size`.
Tensor scaled_images(const Tensor& x, int64_t size, double fade) {
  if (x.dim() != 4 || size < 1 || x.size(2) != x.size(3) || x.size(2) < size || x.size(2) % size != 0)
    throw ShapeError("scaled_images", "expected images [N,C,S,S] with S a multiple of ", size,
                     ", the size of the current scale, got ", describe(x));
  if (!(fade >= 0 && fade <= 1)) throw ValueError("scaled_images", "expected a fade in [0,1], got ", fade);
  const int64_t factor = x.size(2) / size;
  const Tensor y = factor == 1 ? x : avg_pool2d(x, factor);
  if (fade == 1 || size < 2) return y;
  return lerp(interpolate(avg_pool2d(y, 2), {.scale_factor = {2}}), y, fade);
}

}  // namespace gradus::gan
