#include "gradus/data/files/cache_dir.h"

#include <cstdlib>

#include "gradus/tensor/base/error.h"

namespace gradus::data {

std::filesystem::path cache_dir() {
  // The XDG Base Directory Specification says to ignore a relative path.
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg && std::filesystem::path(xdg).is_absolute()) return std::filesystem::path(xdg) / "gradus";
  const char* home = std::getenv("HOME");
  if (home && std::filesystem::path(home).is_absolute())
    return std::filesystem::path(home) / ".cache" / "gradus";
  throw FileError("cache_dir", "neither XDG_CACHE_HOME nor HOME names a folder");
}

}  // namespace gradus::data
