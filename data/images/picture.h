// Picture: the value that goes through transforms: an Image up to ToTensor, a tensor from there on.
//
//   data::Picture picture(photo);
//   picture.crop({.left = 40, .top = 0, .width = 600, .height = 600}).resize(224).mirror();
//   Tensor x = picture.to_float().tensor();  // f32[3,224,224]
//
// A picture may have a mask, with a class for each pixel. Cutting, resizing, padding or flipping the picture
// does the same to its mask, with the same numbers. Nothing else changes the mask.
//
//   data::Picture pair(photo, mask);
//   augment.apply(pair);
//   pair.tensor(), pair.mask();  // f32[3,H,W], i64[H,W]
//
// Steps wait until their result is needed, so that several become one pass. Of a photograph only the box that
// a crop leaves is decoded, as small as the resize after it allows. Conversion to normalized floats and
// mirroring are one pass, which may write into a batch. Waiting changes no result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gradus/data/images/image.h"
#include "gradus/data/images/image_ops.h"
#include "gradus/data/images/resample.h"
#include "gradus/tensor/base/shape.h"
#include "gradus/tensor/tensor.h"

namespace gradus::data {

// The float for each byte of each channel. Each step computes its values from those of the step before.
struct ValueTable {
  float of[3][256];

  // Returns the table of byte / 255, as in ToTensor.
  static const std::shared_ptr<const ValueTable>& plain();
};

struct MaskOptions {
  uint8_t fill = 255;  // class of padding; losses and metrics can ignore it (.ignore_index = 255)
};

class Picture {
 public:
  Picture(Image image);    // Errors: StateError for no image
  Picture(Tensor tensor);  // Errors: StateError when undefined
  // Makes a picture with a mask. The mask has one byte for each pixel: its class.
  // Errors: ValueError unless the mask is gray and has the image's size.
  Picture(Image image, Image mask, MaskOptions options = {});

  // Says whether the picture is still 8-bit pixels.
  bool is_image() const { return stage_ == Stage::kImage; }
  // Errors: ShapeError for a tensor without this dimension.
  int64_t height() const;
  int64_t width() const;
  int64_t channels() const;

  // Returns the pixels.
  // Errors: StateError when it is a tensor.
  Image image();
  // Returns the values, row-major.
  // Errors: StateError when it is an image.
  Tensor tensor();
  bool has_mask() const { return !mask_.empty(); }
  // Returns the mask as it is now, i64[H,W].
  // Errors: StateError when there is none.
  Tensor mask();

  // --- of an image; StateError when it is a tensor ---
  // Crops to a box.
  // Errors: ValueError unless the box is inside.
  Picture& crop(Box box);
  // Resizes the image. With scaled_decoding, a photograph may be decoded at 1/2, 1/4 or 1/8 of its size, as
  // long as that is not smaller than `size`. This is faster, and the result differs a little from Pillow's.
  // Errors: ValueError for a size below 1.
  Picture& resize(Size2 size, Interpolation filter = Interpolation::kBilinear, bool scaled_decoding = false);
  // Swaps left and right.
  Picture& mirror();
  // Swaps above and below.
  Picture& flip();
  // Adds pixels around the image. With PaddingMode::kConstant the mask gets MaskOptions::fill there.
  // Errors: as gradus::data::pad.
  Picture& pad(Padding padding, PadImageOptions options = {});
  // Replaces the image.
  // Errors: StateError for an image of another size when there is a mask, because the mask does not follow.
  Picture& set(Image image);
  // Becomes a tensor f32[C,H,W], of bytes divided by 255.
  Picture& to_float();

  // --- of a tensor; StateError when it is an image ---
  Picture& set(Tensor tensor);
  // Computes (x - mean) / std for each channel. `mean` and `std` have one number for each channel,
  // or one for all.
  // Errors: ValueError for any other number of them.
  Picture& normalize(std::span<const float> mean, std::span<const float> std);
  // Adds offset[c] to channel c.
  // Errors: ValueError unless there is one offset for each channel.
  Picture& shift(std::span<const float> offset);

  // --- for data sets and transforms themselves ---
  // Throw unless this is an image (require_image), or a tensor (require_tensor).
  // Errors: StateError that says where `op` belongs.
  void require_image(const char* op) const;
  void require_tensor(const char* op) const;
  // Returns the table from bytes to floats. It is null for an image, and once the floats have been made.
  const std::shared_ptr<const ValueTable>& values() const { return values_; }
  void set_values(std::shared_ptr<const ValueTable> values) { values_ = std::move(values); }
  // Returns a copy of the values that may be written to, with the channels innermost.
  Tensor own_tensor();
  // Shape and dtype of the tensor.
  Shape shape() const;
  DType dtype() const;
  // Writes f32[C,H,W] to `out`, channels innermost.
  void write_channels_last(float* out);

 private:
  // kFloats: a tensor that is still pixels and a table.
  enum class Stage { kImage, kFloats, kTensor };
  struct Resize {
    Size2 size;
    Interpolation filter;
    bool scaled_decoding;
  };

  template <class F> Picture& map_values(F&& f);
  Image resized() const;
  void replace(Image image);
  const Image& settled();

  std::vector<Picture> mask_;  // one, or none
  uint8_t mask_fill_ = 0;
  Stage stage_;
  Image image_;                   // before the steps that wait:
  Box box_;                       // of image_
  std::optional<Resize> resize_;  // of the box
  Box window_;                    // of the resized box
  bool is_mirrored_ = false;
  std::shared_ptr<const ValueTable> values_;
  Tensor tensor_;
};

}  // namespace gradus::data
