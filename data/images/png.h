// Decodes PNG files with libpng.
#pragma once

#include "gradus/data/images/encoded_image.h"

namespace gradus::data::internal {

bool is_png(const EncodedImage& file);

// Checks the sequence of chunks, and reads the chunks before the pixels.
// Errors: FileError.
ImageHeader read_png_header(const EncodedImage& file);

// Decodes a box. `channels` is 3, or 1 for a gray file. Decoding of a file that is not interlaced stops after the
// box's last row.
// Errors: FileError.
Image decode_png(const EncodedImage& file, Box box, int64_t channels);

}  // namespace gradus::data::internal
