#include "gradus/train/internal/system.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::training::internal {

double peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void write_text_file(const std::filesystem::path& path, const std::string& text) {
  const gradus::internal::BlockedSignals blocked;
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text << std::flush;
  if (!out)
    throw FileError("write", "cannot write ", path.string(),
                    errno ? std::string(": ") + std::strerror(errno) : "");
}

}  // namespace gradus::training::internal
