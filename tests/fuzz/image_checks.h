// What must hold of any image file.
#pragma once

#include <string_view>

namespace gradus::fuzz {

// Decodes it in full, in part, scaled down and as far as it goes; what comes out must agree.
void check_image(std::string_view file);

}  // namespace gradus::fuzz
