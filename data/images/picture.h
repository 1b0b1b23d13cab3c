// Picture: the sample that data transforms modify in place: an 8-bit Image before ToTensor (to_float), a
// tensor [C,H,W] after it, with an optional segmentation mask. One thread uses a picture at a time.
//
//   data::Picture picture(photo);
//   picture.crop({.left = 40, .top = 0, .width = 600, .height = 600}).resize(224).mirror();
//   Tensor x = picture.to_float().tensor();  // f32[3,224,224]
//
// A picture may have a segmentation mask with a class per pixel. Crops, resizes, padding and flips change
// picture and mask alike; other operations do not change the mask.
//
//   data::Picture pair(photo, mask);
//   augment.apply(pair);
//   pair.tensor(), pair.mask();  // f32[3,H,W], i64[H,W]
//
// Evaluation is lazy, so that several operations are one pass over the pixels. Only the cropped box is
// decoded, with scaled_decoding at the smallest scale that the resize allows. Conversion to normalized floats
// and mirroring are one pass, which can write directly into a batch. Laziness does not change results.
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

// A lookup table: values[c][b] is the float value of byte b in channel c. Pointwise operations (normalize, shift)
// change the table instead of the pixels.
struct ValueTable {
  float values[3][256];

  // Returns the table of byte / 255, as in ToTensor.
  static const std::shared_ptr<const ValueTable>& plain();
};

namespace internal {
// Converts bytes to floats by table lookup, mirroring rows if `is_mirrored`.
// Shapes: in [H,W,C], C 1 or 3 -> out f32[H,W,C].
void to_floats(Pixels in, const ValueTable& table, bool is_mirrored, float* out);
}  // namespace internal

struct MaskOptions {
  uint8_t fill = 255;  // class of padding; losses and metrics can ignore it (.ignore_index = 255)
};

class Picture {
 public:
  Picture(Image image);    // Errors: StateError for an undefined image
  Picture(Tensor tensor);  // on the CPU, shared. Errors: StateError if undefined
  // Makes a picture with a mask [H,W], which has one byte for each pixel: its class.
  // Errors: ValueError unless the mask is gray and has the image's size.
  Picture(Image image, Image mask, MaskOptions options = {});

  // Returns whether the picture is an image (8-bit pixels).
  bool is_image() const { return stage_ == Stage::kImage; }
  // Sizes of the image or of the tensor [C,H,W].
  // Errors: ShapeError for a tensor without this dimension.
  int64_t height() const;
  int64_t width() const;
  int64_t channels() const;

  // Returns the pixels, after all pending operations.
  // Errors: StateError for a tensor.
  Image image();
  // Returns the values f32[C,H,W], row-major, or the tensor that was set if it has another dtype or rank.
  // Shares memory with the picture.
  // Errors: StateError for an image.
  Tensor tensor();
  bool has_mask() const { return !mask_.empty(); }
  // Returns the current mask, i64[H,W].
  // Errors: StateError if there is no mask.
  Tensor mask();

  // --- Operations on an image. They return *this; StateError for a tensor. ---

  // Crops to a box, in pixels of the current image.
  // Errors: ValueError unless the box is inside the image.
  Picture& crop(Box box);
  // Resizes the image with antialiasing (unless kNearest), and the mask to the nearest pixels. With
  // scaled_decoding, a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, as long as the result is not
  // smaller than `size`, which is faster but differs slightly from Pillow's result.
  // Errors: ValueError for a size outside [1, 2^24].
  Picture& resize(Size2 size, Interpolation filter = Interpolation::kBilinear, bool scaled_decoding = false);
  // Mirrors horizontally (swaps left and right).
  Picture& mirror();
  // Mirrors vertically (swaps top and bottom).
  Picture& flip();
  // Adds pixels around the image. With PaddingMode::kConstant, the mask gets MaskOptions::fill.
  // Errors: as gradus::data::pad.
  Picture& pad(Padding padding, PadImageOptions options = {});
  // Replaces the image.
  // Errors: StateError for an image of another size if the picture has a mask.
  Picture& set(Image image);
  // Converts to a tensor f32[C,H,W], the bytes divided by 255.
  Picture& to_float();

  // --- Operations on a tensor. They return *this; StateError for an image. ---

  // Replaces the tensor.
  Picture& set(Tensor tensor);
  // x[c] = (x[c] - mean[c]) / std[c]. `mean` and `std` have one number per channel, or one for all channels.
  // Errors: ValueError for any other length.
  Picture& normalize(std::span<const float> mean, std::span<const float> std);
  // x[c] += offset[c].
  // Errors: ValueError unless `offset` has one number per channel.
  Picture& shift(std::span<const float> offset);

  // --- For implementations of data sets and transforms. ---

  // Check that the picture is an image (require_image), or a tensor (require_tensor).
  // Errors: StateError that says whether `op` belongs before or after ToTensor.
  void require_image(const char* op) const;
  void require_tensor(const char* op) const;
  // Returns the lookup table from bytes to floats. Null for an image, and once the floats are computed. May
  // be replaced (by a table, not null) only if it is not null.
  const std::shared_ptr<const ValueTable>& value_table() const { return value_table_; }
  void set_value_table(std::shared_ptr<const ValueTable> table) { value_table_ = std::move(table); }
  // Returns a writable copy of the values, channels-last. Errors: StateError for an image; ShapeError unless
  // f32[C,H,W].
  Tensor channels_last_copy();
  // Shape and dtype of the tensor; for an image, of the tensor that to_float() makes.
  Shape shape() const;
  DType dtype() const;
  // Writes the values f32[C,H,W] (not checked) to `out` [H,W,C], which has room for C*H*W floats.
  void write_channels_last(float* out);

 private:
  // kFloats: a tensor that is represented by pixels and a lookup table.
  enum class Stage { kImage, kFloats, kTensor };
  struct Resize {
    Size2 size;
    Interpolation filter;
    bool scaled_decoding;
  };

  template <class F> Picture& map_values(F&& f);
  Image resized() const;
  void replace(Image image);
  const Image& materialize();  // applies the pending operations except mirroring

  std::vector<Picture> mask_;  // the mask as a gray picture; at most one element
  uint8_t mask_fill_ = 0;      // MaskOptions::fill
  Stage stage_;
  Image image_;                   // before the pending operations, which are, in order:
  Box box_;                       // crop of image_
  std::optional<Resize> resize_;  // resize of the crop
  Box window_;                    // crop of the resized crop
  bool is_mirrored_ = false;
  std::shared_ptr<const ValueTable> value_table_;  // of kFloats
  Tensor tensor_;                                  // of kTensor
};

}  // namespace gradus::data
