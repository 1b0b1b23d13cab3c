// Transform: a preprocessing or augmentation step for images; Compose, RandomApply and Lambda.
//
//   const data::Transform transform = data::Compose({
//       data::RandomResizedCrop({.size = 224}), data::RandomHorizontalFlip(), data::ToTensor(),
//       data::Normalize({.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}})});
//
// User-defined steps derive from TransformStep or use Lambda. Random steps draw from the Context's generator. A
// loader installs a separate generator per sample, so that results depend only on (seed, epoch, sample).
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/data/images/picture.h"

namespace gradus::data {
namespace internal {
// Returns p.
// Errors: ValueError unless 0 <= p <= 1.
double check_probability(const char* op, double p);
}  // namespace internal

// Base class of transforms. Several threads call apply() concurrently.
class TransformStep {
 public:
  virtual ~TransformStep() = default;
  virtual void apply(Picture& picture) const = 0;
  // Returns whether each output float depends only on its channel and its byte, as in ToTensor and Normalize. Data
  // sets in memory then precompute a lookup table of 256 values per channel.
  virtual bool is_pointwise() const { return false; }
  // Returns the picture after this step: flip(image).image().
  Picture operator()(Picture picture) const;
};

// A shared reference to a step.
class Transform {
 public:
  template <class Step>
    requires std::derived_from<std::remove_cvref_t<Step>, TransformStep>
  Transform(Step&& step);

  void apply(Picture& picture) const { step_->apply(picture); }
  bool is_pointwise() const { return step_->is_pointwise(); }
  Picture operator()(Picture picture) const;

 private:
  std::shared_ptr<const TransformStep> step_;
};

// Defined outside of the class, so that `extern template` suppresses the instantiation for common steps.
template <class Step>
  requires std::derived_from<std::remove_cvref_t<Step>, TransformStep>
Transform::Transform(Step&& step)
    : step_(std::make_shared<std::remove_cvref_t<Step>>(std::forward<Step>(step))) {}

// Applies steps in order.
class Compose : public TransformStep {
 public:
  explicit Compose(std::vector<Transform> steps);
  Compose(std::initializer_list<Transform> steps);
  void apply(Picture& picture) const override;
  bool is_pointwise() const override;

 private:
  std::vector<Transform> steps_;
};
extern template Transform::Transform(Compose&&);

struct RandomApplyOptions {
  double p = 0.5;
};

// Applies all steps with probability p; otherwise none.
class RandomApply : public TransformStep {
 public:
  // Errors: ValueError unless 0 <= p <= 1.
  explicit RandomApply(std::vector<Transform> steps, RandomApplyOptions options = {});
  void apply(Picture& picture) const override;

 private:
  std::vector<Transform> steps_;
  double p_;
};

// Applies a function to the image or, after ToTensor, to the tensor. Several threads call the function.
// Errors: StateError at the wrong side of ToTensor, or for an undefined result.
class Lambda : public TransformStep {
 public:
  template <class F>
    requires std::is_invocable_r_v<Image, F, Image>
  Lambda(F f) : of_image_(std::move(f)) {}
  template <class F>
    requires std::is_invocable_r_v<Tensor, F, Tensor>
  Lambda(F f) : of_tensor_(std::move(f)) {}
  void apply(Picture& picture) const override;

 private:
  std::function<Image(Image)> of_image_;
  std::function<Tensor(Tensor)> of_tensor_;
};

}  // namespace gradus::data
