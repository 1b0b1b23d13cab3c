// EXIF metadata: the one tag that says which way up a photograph is.
#pragma once

#include <cstdint>
#include <span>

namespace gradus::data::internal {

// Returns the orientation, 1 to 8, from a TIFF structure: the content of PNG's eXIf, or of JPEG's APP1
// after "Exif\0\0". Returns 1 when the structure names none or is malformed, because that says nothing
// about the pixels.
int exif_orientation(std::span<const uint8_t> tiff);

}  // namespace gradus::data::internal
