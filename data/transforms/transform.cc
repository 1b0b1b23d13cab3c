// Implementation of Compose, RandomApply and Lambda.
#include "gradus/data/transforms/transform.h"

#include <algorithm>

#include "gradus/data/transforms/random_numbers.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {

void Compose::apply(Picture& picture) const {
  for (const Transform& step : steps_) step.apply(picture);
}

bool Compose::is_pointwise() const { return std::ranges::all_of(steps_, &Transform::is_pointwise); }

RandomApply::RandomApply(std::vector<Transform> steps, RandomApplyOptions options)
    : steps_(std::move(steps)), p_(options.p) {
  if (!(p_ >= 0 && p_ <= 1)) throw ValueError("RandomApply", "p must lie in [0, 1], got ", p_);
}

void RandomApply::apply(Picture& picture) const {
  if (!internal::RandomNumbers().chance(p_)) return;
  for (const Transform& step : steps_) step.apply(picture);
}

void Lambda::apply(Picture& picture) const {
  of_image_ ? picture.set(of_image_(picture.image())) : picture.set(of_tensor_(picture.tensor()));
}

}  // namespace gradus::data
