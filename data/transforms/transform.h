// Transform: a step that an image goes through on its way into a batch, and ways to make and join such steps.
//
//   const data::Transform transform = data::Compose({
//       data::RandomResizedCrop({.size = 224}), data::RandomHorizontalFlip(), data::ToTensor(),
//       data::Normalize({.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}})});
//
// A user's own step derives from TransformStep, or is a Lambda. Random steps draw from the
// Context's generator. A loader gives each sample its own generator, so that results depend on
// (seed, epoch, sample) alone.
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

// apply() is called from several threads at once.
class TransformStep {
 public:
  virtual ~TransformStep() = default;
  virtual void apply(Picture& picture) const = 0;
  // Says whether the step only computes floats, each from its channel and its byte, as ToTensor and Normalize
  // do. Data sets in memory then compute the floats of all 256 bytes once.
  virtual bool is_pointwise() const { return false; }
  // Returns the picture after this step: flip(image).image().
  Picture operator()(Picture picture) const {
    apply(picture);
    return picture;
  }
};

// A handle to a step. Copies share the step.
class Transform {
 public:
  template <class Step>
    requires std::derived_from<std::remove_cvref_t<Step>, TransformStep>
  Transform(Step&& step) : step_(std::make_shared<std::remove_cvref_t<Step>>(std::forward<Step>(step))) {}

  void apply(Picture& picture) const { step_->apply(picture); }
  bool is_pointwise() const { return step_->is_pointwise(); }
  Picture operator()(Picture picture) const { return (*step_)(std::move(picture)); }

 private:
  std::shared_ptr<const TransformStep> step_;
};

// Applies steps one after the other.
class Compose : public TransformStep {
 public:
  explicit Compose(std::vector<Transform> steps) : steps_(std::move(steps)) {}
  Compose(std::initializer_list<Transform> steps) : steps_(steps) {}
  void apply(Picture& picture) const override;
  bool is_pointwise() const override;

 private:
  std::vector<Transform> steps_;
};

struct RandomApplyOptions {
  double p = 0.5;
};

// Applies all steps with probability p, else none.
class RandomApply : public TransformStep {
 public:
  // Errors: ValueError unless 0 <= p <= 1.
  explicit RandomApply(std::vector<Transform> steps, RandomApplyOptions options = {});
  void apply(Picture& picture) const override;

 private:
  std::vector<Transform> steps_;
  double p_;
};

// Applies a function to the image or, after ToTensor, to the tensor.
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
