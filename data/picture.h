// Picture: what goes through transforms. An Image up to ToTensor, a tensor from there on.
//
//   data::Picture picture(photo);
//   picture.crop({.left = 40, .top = 0, .width = 600, .height = 600}).resize(224).mirror();
//   Tensor x = picture.to_float().tensor();  // f32[3,224,224]
//
// Steps wait until their result is needed, so that several become one pass: of a photograph only the box that
// a crop leaves is decoded, as small as the resize after it allows; turning bytes into normalised floats, and
// mirrored, is one pass, which may write into a batch. Waiting changes no result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gradus/data/image.h"
#include "gradus/data/resample.h"
#include "gradus/tensor/shape.h"
#include "gradus/tensor/tensor.h"

namespace gradus::data {

// The float that each byte of each channel becomes. Values of one step follow from those of the step before.
struct ValueTable {
  float of[3][256];

  // byte / 255, as ToTensor has it.
  static const std::shared_ptr<const ValueTable>& plain();
};

class Picture {
 public:
  Picture(Image image);    // Errors: StateError for no image
  Picture(Tensor tensor);  // Errors: StateError when undefined

  // It is 8-bit pixels still.
  bool is_image() const { return stage_ == Stage::kImage; }
  // Errors: ShapeError for a tensor of fewer dims than these.
  int64_t height() const;
  int64_t width() const;
  int64_t channels() const;

  // The pixels. Errors: StateError when it is a tensor.
  Image image();
  // The values, row-major. Errors: StateError when it is an image.
  Tensor tensor();

  // --- of an image; StateError when it is a tensor ---
  // Leaves a box of it. Errors: ValueError unless the box is inside.
  Picture& crop(Box box);
  // Resizes it. With scaled_decoding, a photograph may be decoded at 1/2, 1/4 or 1/8 of its size, while that
  // is not smaller than `size`: faster, and a little different from Pillow's result. Errors: ValueError for
  // a size below 1.
  Picture& resize(Size2 size, Interpolation filter = Interpolation::kBilinear, bool scaled_decoding = false);
  // Swaps left and right.
  Picture& mirror();
  // Replaces it.
  Picture& set(Image image);
  // Becomes a tensor f32[C,H,W], of bytes divided by 255.
  Picture& to_float();

  // --- of a tensor; StateError when it is an image ---
  Picture& set(Tensor tensor);
  // x -> (x - mean) / std, for each channel; `mean` and `std` have one number for each, or one for all.
  // Errors: ValueError for other numbers of them.
  Picture& normalize(std::span<const float> mean, std::span<const float> std);
  // x[c] -> x[c] + offset[c]. Errors: ValueError unless there is one for each channel.
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
  const Image& settled();

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
