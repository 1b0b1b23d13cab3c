// Decodes JPEG files with libjpeg-turbo.
#pragma once

#include "gradus/data/images/encoded_image.h"

namespace gradus::data::internal {

bool is_jpeg(const EncodedImage& file);

// Reads the headers, not the pixels.
// Errors: FileError.
ImageHeader read_jpeg_header(const EncodedImage& file);

// Decodes a box of the image after scaling to 1/scale (1, 2, 4 or 8; sizes rounded up). The box is in pixels
// of the scaled image. `channels` is 3, or 1 for a gray file. Decoding of a file that is not progressive stops
// after the box's last row.
// Errors: FileError.
Image decode_jpeg(const EncodedImage& file, Box box, int scale, int64_t channels);

}  // namespace gradus::data::internal
