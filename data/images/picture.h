// Picture: what goes through transforms. An Image up to ToTensor, a tensor from there on.
//
//   data::Picture picture(photo);
//   picture.crop({.left = 40, .top = 0, .width = 600, .height = 600}).resize(224).mirror();
//   Tensor x = picture.to_float().tensor();  // f32[3,224,224]
//
// A picture may have a mask, with a class for each pixel: what cuts, resizes, pads or flips the picture does
// so to the mask, by the same numbers, and nothing else changes it.
//
//   data::Picture pair(photo, mask);
//   augment.apply(pair);
//   pair.tensor(), pair.mask();  // f32[3,H,W], i64[H,W]
//
// Steps wait until their result is needed, so that several become one pass: of a photograph only the box that
// a crop leaves is decoded, as small as the resize after it allows; turning bytes into normalized floats, and
// mirrored, is one pass, which may write into a batch. Waiting changes no result.
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

// The float that each byte of each channel becomes. Values of one step follow from those of the step before.
struct ValueTable {
  float of[3][256];

  // byte / 255, as ToTensor has it.
  static const std::shared_ptr<const ValueTable>& plain();
};

struct MaskOptions {
  uint8_t fill = 255;  // what padding has: a class that losses and metrics ignore (.ignore_index = 255)
};

class Picture {
 public:
  Picture(Image image);    // Errors: StateError for no image
  Picture(Tensor tensor);  // Errors: StateError when undefined
  // With a mask: one byte for each pixel, its class.
  // Errors: ValueError unless it is gray and of the image's size.
  Picture(Image image, Image mask, MaskOptions options = {});

  // It is 8-bit pixels still.
  bool is_image() const { return stage_ == Stage::kImage; }
  // Errors: ShapeError for a tensor of fewer dims than these.
  int64_t height() const;
  int64_t width() const;
  int64_t channels() const;

  // The pixels.
  // Errors: StateError when it is a tensor.
  Image image();
  // The values, row-major.
  // Errors: StateError when it is an image.
  Tensor tensor();
  bool has_mask() const { return !mask_.empty(); }
  // The mask as it is now, i64[H,W].
  // Errors: StateError when there is none.
  Tensor mask();

  // --- of an image; StateError when it is a tensor ---
  // Leaves a box of it.
  // Errors: ValueError unless the box is inside.
  Picture& crop(Box box);
  // Resizes it. With scaled_decoding, a photograph may be decoded at 1/2, 1/4 or 1/8 of its size, while that
  // is not smaller than `size`: faster, and a little different from Pillow's result.
  // Errors: ValueError for a size below 1.
  Picture& resize(Size2 size, Interpolation filter = Interpolation::kBilinear, bool scaled_decoding = false);
  // Swaps left and right.
  Picture& mirror();
  // Swaps above and below.
  Picture& flip();
  // Adds pixels around it. The mask has its fill where this has a constant one.
  // Errors: as gradus::data::pad.
  Picture& pad(Padding padding, PadImageOptions options = {});
  // Replaces it.
  // Errors: StateError for one of another size when there is a mask, which would not follow.
  Picture& set(Image image);
  // Becomes a tensor f32[C,H,W], of bytes divided by 255.
  Picture& to_float();

  // --- of a tensor; StateError when it is an image ---
  Picture& set(Tensor tensor);
  // x -> (x - mean) / std, for each channel; `mean` and `std` have one number for each, or one for all.
  // Errors: ValueError for other numbers of them.
  Picture& normalize(std::span<const float> mean, std::span<const float> std);
  // x[c] -> x[c] + offset[c].
  // Errors: ValueError unless there is one for each channel.
  Picture& shift(std::span<const float> offset);

  // --- for data sets and transforms themselves ---
  // Errors: StateError that says where `op` belongs.
  void require_image(const char* op) const;
  void require_tensor(const char* op) const;
  // The table that makes floats of the bytes; null for an image, and where the floats have been made.
  const std::shared_ptr<const ValueTable>& values() const { return values_; }
  void set_values(std::shared_ptr<const ValueTable> values) { values_ = std::move(values); }
  // The values, in memory of their own that may be written to, channels innermost.
  Tensor own_tensor();
  // Of the tensor.
  Shape shape() const;
  DType dtype() const;
  // Writes f32[C,H,W] to `out`, channels innermost.
  void write_channels_last(float* out);

 private:
  enum class Stage {
    kImage,
    kFloats,
    kTensor
  };  // kFloats: a tensor of which the pixels and the table are known
  struct Resize {
    Size2 size;
    Interpolation filter;
    bool scaled_decoding;
  };

  template <class F>
  Picture& map_values(F&& f);
  Image resized() const;
  void replace(Image image);
  const Image& settled();

  std::vector<Picture> mask_;  // one, or none
  uint8_t mask_fill_ = 0;
  Stage stage_;
  Image image_;                   // before what waits:
  Box box_;                       // of image_
  std::optional<Resize> resize_;  // of the box
  Box window_;                    // of the resized box
  bool is_mirrored_ = false;
  std::shared_ptr<const ValueTable> values_;
  Tensor tensor_;
};

}  // namespace gradus::data
