// Transforms that crop, resize, pad and flip images. Names, defaults and distributions are torchvision's.
// apply() changes a picture's image and its segmentation mask, if there is one, alike, may run on several
// threads, and is a StateError after ToTensor. Sizes are in pixels, 1 to 2^24, with the height first (Size2
// {h, w}). Random transforms draw from the calling thread's Context.
#pragma once

#include <cstdint>
#include <optional>

#include "gradus/data/images/image_ops.h"
#include "gradus/data/transforms/transform.h"
#include "gradus/tensor/base/required.h"

namespace gradus::data {

// The size after Resize: a height and a width, or one number for the shorter side, which keeps the aspect
// ratio.
struct ResizeSize {
  Size2 both;  // used when `shorter` is 0
  int64_t shorter = 0;
  constexpr ResizeSize() = default;
  template <std::integral T> constexpr ResizeSize(T shorter_) : shorter(shorter_) {}
  constexpr ResizeSize(int64_t height, int64_t width) : both(height, width) {}
};

struct ResizeOptions {
  Required<ResizeSize, "size"> size;
  Interpolation interpolation = Interpolation::kBilinear;
  std::optional<int64_t> max_size = {};  // limit of the longer side if `size` is one number
  // Decodes JPEGs at 1/2, 1/4 or 1/8 of their size if large enough: faster, but not bit for bit Pillow's
  // result.
  bool scaled_decoding = false;
};

// Resizes with antialiasing, as Pillow does.
class Resize : public TransformStep {
 public:
  // Errors: ValueError for sizes below 1, and for a max_size that is not greater than the shorter side's
  // size.
  explicit Resize(ResizeOptions options);
  void apply(Picture& picture) const override;

 private:
  ResizeOptions options_;
};

struct CenterCropOptions {
  Required<Size2, "size"> size;
};

// Crops the center of the image. A smaller image is first padded with black.
class CenterCrop : public TransformStep {
 public:
  explicit CenterCrop(CenterCropOptions options);  // Errors: ValueError for sizes below 1
  void apply(Picture& picture) const override;

 private:
  Size2 size_;
};

struct RandomCropOptions {
  Required<Size2, "size"> size;
  Padding padding = 0;         // added before the crop
  bool pad_if_needed = false;  // then pads both sides of dimensions that are smaller than `size`
  Fill fill = 0;
  PaddingMode padding_mode = PaddingMode::kConstant;
};

// Crops a box at a uniformly random position.
class RandomCrop : public TransformStep {
 public:
  explicit RandomCrop(RandomCropOptions options);  // Errors: ValueError for sizes below 1
  // Errors: ValueError for an image that is smaller than `size`.
  void apply(Picture& picture) const override;

 private:
  RandomCropOptions options_;
};

// The closed interval [low, high].
struct Interval {
  double low = 0, high = 0;
};

struct RandomResizedCropOptions {
  Required<Size2, "size"> size;
  Interval scale = {0.08, 1};         // area of the box / area of the image
  Interval ratio = {3. / 4, 4. / 3};  // width / height of the box; drawn uniformly in log(ratio)
  Interpolation interpolation = Interpolation::kBilinear;
  // As in ResizeOptions, but true by default. false gives bit for bit Pillow's result.
  bool scaled_decoding = true;
};

// Crops a box of random area and aspect ratio, and resizes it to `size`.
class RandomResizedCrop : public TransformStep {
 public:
  // Errors: ValueError for sizes below 1, and intervals that are empty or not above 0.
  explicit RandomResizedCrop(RandomResizedCropOptions options);
  void apply(Picture& picture) const override;
  // Draws the box for an image of this size. If ten draws do not fit into the image, returns the largest
  // centered box with an allowed aspect ratio.
  Box draw_box(int64_t height, int64_t width) const;

 private:
  RandomResizedCropOptions options_;
};

struct FlipOptions {
  double p = 0.5;  // probability of a flip
};

// Mirrors horizontally (RandomHorizontalFlip) or vertically (RandomVerticalFlip) with probability p.
class RandomHorizontalFlip : public TransformStep {
 public:
  explicit RandomHorizontalFlip(FlipOptions options = {});  // Errors: ValueError unless 0 <= p <= 1
  void apply(Picture& picture) const override;

 private:
  double p_;
};

class RandomVerticalFlip : public TransformStep {
 public:
  explicit RandomVerticalFlip(FlipOptions options = {});  // Errors: ValueError unless 0 <= p <= 1
  void apply(Picture& picture) const override;

 private:
  double p_;
};

struct PadTransformOptions {
  Required<Padding, "padding"> padding;
  Fill fill = 0;
  PaddingMode padding_mode = PaddingMode::kConstant;
};

// Adds pixels on the sides of the image.
class Pad : public TransformStep {
 public:
  explicit Pad(PadTransformOptions options) : options_(options) {}
  void apply(Picture& picture) const override;  // Errors: as pad()

 private:
  PadTransformOptions options_;
};

}  // namespace gradus::data
