// Compose, RandomApply and Lambda. Steps are const and shared, so apply() may run on several threads, each
// with its own Picture; random numbers come from the Context's generator of the calling thread.
#include "gradus/data/transforms/transform.h"

#include <algorithm>

#include "gradus/data/transforms/random_numbers.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {

double internal::check_probability(const char* op, double p) {
  if (!(p >= 0 && p <= 1)) throw ValueError(op, "p must lie in [0, 1], got ", p);
  return p;
}

Picture TransformStep::operator()(Picture picture) const {
  apply(picture);
  return picture;
}

Picture Transform::operator()(Picture picture) const { return (*step_)(std::move(picture)); }

template Transform::Transform(Compose&&);

Compose::Compose(std::vector<Transform> steps) : steps_(std::move(steps)) {}
Compose::Compose(std::initializer_list<Transform> steps) : steps_(steps) {}

void Compose::apply(Picture& picture) const {
  for (const Transform& step : steps_) step.apply(picture);
}

bool Compose::is_pointwise() const { return std::ranges::all_of(steps_, &Transform::is_pointwise); }

RandomApply::RandomApply(std::vector<Transform> steps, RandomApplyOptions options)
    : steps_(std::move(steps)), p_(internal::check_probability("RandomApply", options.p)) {}

void RandomApply::apply(Picture& picture) const {
  if (!internal::RandomNumbers().bernoulli(p_)) return;
  for (const Transform& step : steps_) step.apply(picture);
}

void Lambda::apply(Picture& picture) const {
  of_image_ ? picture.set(of_image_(picture.image())) : picture.set(of_tensor_(picture.tensor()));
}

}  // namespace gradus::data
