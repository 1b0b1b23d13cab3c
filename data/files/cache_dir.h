// Where data sets are kept when the user names no folder.
#pragma once

#include <filesystem>

namespace gradus::data {

// Returns $XDG_CACHE_HOME/gradus, or ~/.cache/gradus. Creates nothing.
// Errors: FileError when there is no home folder.
std::filesystem::path cache_dir();

}  // namespace gradus::data
