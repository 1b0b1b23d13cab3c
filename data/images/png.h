// PNG files, by libpng.
#pragma once

#include "gradus/data/images/encoded_image.h"

namespace gradus::data::internal {

bool is_png(const EncodedImage& file);

// Reads the sequence of chunks, and those before the pixels.
// Errors: FileError.
ImageHeader read_png_header(const EncodedImage& file);

// Decodes a box, as 3 channels, or 1 of a gray file. Of a file that is not interlaced, reads no further than
// the box's last row.
// Errors: FileError.
Image decode_png(const EncodedImage& file, Box box, int64_t channels);

}  // namespace gradus::data::internal
