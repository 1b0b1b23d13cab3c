// Conversion of images to tensors f32[C, H, W], and transforms of those tensors. Names, defaults and
// distributions are torchvision's. apply() changes a Picture (images/picture.h), one sample's image, may run
// on several threads, and is a StateError for a tensor (ToTensor) or an image (others). is_pointwise(): each
// result value depends only on its channel and its 8-bit input value.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "gradus/data/transforms/geometry.h"
#include "gradus/data/transforms/transform.h"

namespace gradus::data {

// Converts an 8-bit image [H, W, C] to f32[C, H, W], the bytes divided by 255.
class ToTensor : public TransformStep {
 public:
  void apply(Picture& picture) const override { picture.to_float(); }
  bool is_pointwise() const override { return true; }
};
extern template Transform::Transform(ToTensor&&);

struct NormalizeOptions {
  std::vector<double> mean = {}, std = {};  // one number per channel, or one for all channels
};

// y[c, h, w] = (x[c, h, w] - mean[c]) / std[c].
class Normalize : public TransformStep {
 public:
  // Errors: ValueError for empty lists, and a std that is not positive.
  explicit Normalize(NormalizeOptions options);
  void apply(Picture& picture) const override;  // Errors: ValueError for another number of channels
  bool is_pointwise() const override { return true; }

 private:
  std::vector<float> mean_, std_;
  std::shared_ptr<const ValueTable> normalized_table_;  // ValueTable::plain() after normalization
};
extern template Transform::Transform(Normalize&&);

struct LightingOptions {
  double std = 0.1;
  // Eigenvalues and eigenvectors of the covariance of RGB values in [0, 1] over ImageNet. Column k of
  // `vectors` belongs to values[k].
  std::array<double, 3> values = {0.2175, 0.0188, 0.0045};
  std::array<std::array<double, 3>, 3> vectors = {
      {{-0.5675, 0.7192, 0.4009}, {-0.5808, -0.0045, -0.8140}, {-0.5836, -0.6948, 0.4203}}};
};

// AlexNet's PCA color noise (Krizhevsky et al. 2012), to be used between ToTensor and Normalize:
//   y[c] = x[c] + sum_k a_k values[k] vectors[c][k],  a_k ~ N(0, std^2)
class Lighting : public TransformStep {
 public:
  explicit Lighting(LightingOptions options = {});  // Errors: ValueError for a negative std
  void apply(Picture& picture) const override;      // Errors: ValueError unless there are three channels

 private:
  LightingOptions options_;
};

struct RandomErasingOptions {
  double p = 0.5;
  Interval scale = {0.02, 0.33};    // area of the box / area of the image
  Interval ratio = {0.3, 3.3};      // height / width of the box
  std::vector<double> value = {0};  // one number per channel, or one for all channels
  bool random_value = false;        // use standard normal numbers instead of `value`
};

// Overwrites a random box with probability p (Zhong et al. 2017). To be used after ToTensor.
class RandomErasing : public TransformStep {
 public:
  // Errors: ValueError for p outside [0, 1], a scale that is not an interval in [0, 1], a ratio that is not
  // an interval of positive numbers, or an empty `value`.
  explicit RandomErasing(RandomErasingOptions options = {});
  // Errors: ValueError if the length of `value` is neither 1 nor the number of channels.
  void apply(Picture& picture) const override;

 private:
  RandomErasingOptions options_;
};

}  // namespace gradus::data
