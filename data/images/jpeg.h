// JPEG files, by libjpeg-turbo.
#pragma once

#include "gradus/data/images/encoded_image.h"

namespace gradus::data::internal {

bool is_jpeg(const EncodedImage& file);

// Reads all before the pixels.
// Errors: FileError.
ImageHeader read_jpeg_header(const EncodedImage& file);

// Decodes a box of the image that is scaled to 1/scale (1, 2, 4, 8; sizes rounded up), in its pixels, as 3
// channels, or 1 of a gray file. Reads no further than the box's last row.
// Errors: FileError.
Image decode_jpeg(const EncodedImage& file, Box box, int scale, int64_t channels);

}  // namespace gradus::data::internal
