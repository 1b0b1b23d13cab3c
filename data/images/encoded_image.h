// EncodedImage: the bytes of an image file and the options to decode it. ImageHeader: size and format of the
// image. Decoders of JPEG, PNG and WebP files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradus/data/images/image_decoder.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data::internal {

struct EncodedImage {
  std::string name;            // of the file, in errors
  std::vector<uint8_t> bytes;  // content of the file
  DecodeOptions options;

  template <class... Parts> [[noreturn]] void fail(const Parts&... parts) const {
    throw FileError("decode_image", name, ": ", parts...);
  }
  // Checks the size in the file's header.
  // Errors: FileError for a height or width below 1, or more pixels than DecodeOptions::max_pixels.
  void check_size(int64_t height, int64_t width) const {
    if (height < 1 || width < 1) fail("claims ", height, "x", width, " pixels: there is no image in it");
    if (height > options.max_pixels / width)
      fail("claims ", height, "x", width, " pixels, more than the limit of ", options.max_pixels);
  }
};

// The image's properties as stored in the file, before EXIF orientation is applied. `channels` is 1 for gray
// and for ColorMode::kIndices, else 3.
struct ImageHeader {
  int64_t height = 0, width = 0, channels = 0;
  int orientation = 1;     // EXIF orientation, 1 to 8
  bool can_scale = false;  // the decoder supports decoding at 1/2, 1/4 and 1/8 of the size
};

// ---- JPEG, with libjpeg-turbo ----

bool is_jpeg(const EncodedImage& file);

// Reads the headers, not the pixels.
// Errors: FileError.
ImageHeader read_jpeg_header(const EncodedImage& file);

// Decodes a box of the image after scaling to 1/scale (1, 2, 4 or 8; sizes rounded up). The box lies inside
// the scaled image, in its pixels. `channels` is 3, or 1 for a gray file; neither is checked. Decoding of a
// file that is not progressive stops after the box's last row.
// Errors: FileError.
Image decode_jpeg(const EncodedImage& file, Box box, int scale, int64_t channels);

// ---- PNG, with libpng ----

bool is_png(const EncodedImage& file);

// Checks the sequence of chunks, and reads the chunks before the pixels.
// Errors: FileError.
ImageHeader read_png_header(const EncodedImage& file);

// Decodes a box inside the image. `channels` is 3, or 1 for a gray file; with ColorMode::kIndices it is 1.
// Decoding of a file that is not interlaced stops after the box's last row.
// Errors: FileError.
Image decode_png(const EncodedImage& file, Box box, int64_t channels);

// ---- WebP, with libwebp ----

bool is_webp(const EncodedImage& file);

// Errors: FileError, also for an animation.
ImageHeader read_webp_header(const EncodedImage& file);

// Decodes the whole image to three channels, without transparency, and returns a box inside it.
// Errors: FileError.
Image decode_webp(const EncodedImage& file, Box box);

}  // namespace gradus::data::internal
