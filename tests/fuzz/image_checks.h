// Invariants of decoding that hold for any image file; for fuzz targets.
#pragma once

#include <string_view>

namespace gradus::fuzz {

// Decodes the file in full, in part, scaled down, and with damage allowed. Aborts if the results disagree.
void check_image(std::string_view file);

}  // namespace gradus::fuzz
