// Implementation of the WebP decoder with libwebp: lossy and lossless still images.
#include <webp/decode.h>

#include <cstring>

#include "gradus/data/images/encoded_image.h"

namespace gradus::data::internal {

bool is_webp(const EncodedImage& file) {
  return file.bytes.size() >= 12 && std::memcmp(file.bytes.data(), "RIFF", 4) == 0 &&
         std::memcmp(file.bytes.data() + 8, "WEBP", 4) == 0;
}

ImageHeader read_webp_header(const EncodedImage& file) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(file.bytes.data(), file.bytes.size(), &features) != VP8_STATUS_OK)
    file.fail("is a damaged WebP: its header cannot be read");
  file.check_size(features.height, features.width);
  if (features.has_animation) file.fail("is an animated WebP, expected a still image");
  return {.height = features.height, .width = features.width, .channels = 3};
}

Image decode_webp(const EncodedImage& file, Box box) {
  const ImageHeader header = read_webp_header(file);
  Image image(header.height, header.width, 3);
  if (!WebPDecodeRGBInto(file.bytes.data(), file.bytes.size(), image.mutable_data(), size_t(image.bytes()),
                         int(3 * header.width)))
    file.fail("is a damaged WebP: its pixels cannot be decoded");
  return box == image.whole() ? image : image.crop(box);
}

}  // namespace gradus::data::internal
