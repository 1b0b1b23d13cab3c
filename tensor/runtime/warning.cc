// warn_once: keeps the set of printed texts under a mutex.
#include "gradus/tensor/runtime/warning.h"

#include <cstdio>
#include <mutex>
#include <set>

namespace gradus {

void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  if (printed.insert(text).second) std::fprintf(stderr, "gradus: warning: %s\n", text.c_str());
}

}  // namespace gradus
