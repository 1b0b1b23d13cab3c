// The default folder of data sets.
#pragma once

#include <filesystem>

namespace gradus::data {

// Returns $XDG_CACHE_HOME/gradus, or ~/.cache/gradus. Creates nothing.
// Errors: FileError if there is no home folder.
std::filesystem::path cache_dir();

}  // namespace gradus::data
