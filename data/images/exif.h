// The one tag of EXIF metadata that says which way up a photograph is.
#pragma once

#include <cstdint>
#include <span>

namespace gradus::data::internal {

// Returns the orientation, 1 to 8, that a TIFF structure (the content of PNG's eXIf, or of JPEG's APP1 after
// "Exif\0\0") claims; 1 where it claims none or is malformed, for that says nothing about the pixels.
int exif_orientation(std::span<const uint8_t> tiff);

}  // namespace gradus::data::internal
