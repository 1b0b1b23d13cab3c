#include "gradus/distributed/launch/internal/devices.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace gradus::dist::internal {

int gpu_count() {
  int present = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename();
    present += name.size() > 6 && name.starts_with("nvidia") &&
               std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); });
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return present;
  const std::string list = visible;
  if (list.empty() || list[0] == '-') return 0;
  return std::min<int>(present, 1 + int(std::count(list.begin(), list.end(), ',')));
}

}  // namespace gradus::dist::internal
