// EncodedImage: the bytes of an image file and the options to decode it. ImageHeader: size and format of the
// image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradus/data/images/image_decoder.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data::internal {

struct EncodedImage {
  std::string name;
  std::vector<uint8_t> bytes;
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

// The image's properties as stored in the file, before EXIF orientation is applied.
struct ImageHeader {
  int64_t height = 0, width = 0, channels = 0;
  int orientation = 1;  // EXIF orientation, 1 to 8
  bool scales = false;  // the decoder supports decoding at 1/2, 1/4 and 1/8 of the size
};

}  // namespace gradus::data::internal
