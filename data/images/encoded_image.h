// EncodedImage: a file's bytes, and what the decoders of its format tell and take.
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

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw FileError("decode_image", name, ": ", parts...);
  }
  // Errors: FileError for a size of nothing, or beyond DecodeOptions::max_pixels.
  void check_size(int64_t height, int64_t width) const {
    if (height < 1 || width < 1) fail("claims ", height, "x", width, " pixels: there is no image in it");
    if (height > options.max_pixels / width)
      fail("claims ", height, "x", width, " pixels, more than the limit of ", options.max_pixels);
  }
};

// As the file has it.
struct ImageHeader {
  int64_t height = 0, width = 0, channels = 0;
  int orientation = 1;  // EXIF's, 1 to 8
  bool scales = false;  // the decoder can scale down
};

}  // namespace gradus::data::internal
