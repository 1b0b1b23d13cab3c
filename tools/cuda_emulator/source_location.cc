// Implementation of source_location.h: runs addr2line for each new code address, and caches the results.
#include "gradus/tools/cuda_emulator/source_location.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

namespace gradus::cuda::emulated {
namespace {

struct Symbol {
  std::string function, location;
};

// Returns the last three components of a path.
std::string shortened(std::string path) {
  size_t at = path.size();
  for (int parts = 0; parts < 3 && at != std::string::npos && at > 0; ++parts) at = path.rfind('/', at - 1);
  return at == std::string::npos || at == 0 ? path : path.substr(at + 1);
}

Symbol look_up(const void* code, bool is_return_address) {
  char number[32];
  std::snprintf(number, sizeof number, "%p", code);
  Symbol symbol{number, number};
  Dl_info info{};
  if (!dladdr(code, &info) || !info.dli_fname) return symbol;
  // The program names itself as it was called, which may be relative to another folder.
  char self[PATH_MAX] = {};
  const char* file = realpath("/proc/self/exe", self);
  Dl_info own{};
  if (!dladdr(reinterpret_cast<const void*>(&look_up), &own) || own.dli_fbase != info.dli_fbase || !file)
    file = info.dli_fname;
  // Addresses in a file count from 0, unless it is a program with fixed addresses.
  const bool fixed = static_cast<const ElfW(Ehdr)*>(info.dli_fbase)->e_type == ET_EXEC;
  const auto offset =
      reinterpret_cast<uintptr_t>(code) - (fixed ? 0 : reinterpret_cast<uintptr_t>(info.dli_fbase));
  char command[PATH_MAX + 64];
  std::snprintf(command, sizeof command, "addr2line -f -C -e '%s' 0x%zx 2>/dev/null", file,
                static_cast<size_t>(offset - (is_return_address ? 1 : 0)));
  std::FILE* pipe = popen(command, "r");
  if (!pipe) return symbol;
  std::string lines[2];
  char buffer[4096];
  for (std::string& line : lines) {
    if (!std::fgets(buffer, sizeof buffer, pipe)) break;
    line = buffer;
    while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
  }
  pclose(pipe);
  if (!lines[0].empty() && lines[0] != "??") symbol.function = lines[0];
  if (const size_t extra = lines[1].find(" (discriminator"); extra != std::string::npos)
    lines[1].resize(extra);
  if (!lines[1].empty() && lines[1][0] != '?') symbol.location = shortened(lines[1]);
  return symbol;
}

const Symbol& symbol_of(const void* code, bool is_return_address) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, bool>, Symbol> known;
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = known.try_emplace({code, is_return_address});
  if (fresh) at->second = look_up(code, is_return_address);
  return at->second;
}

}  // namespace

std::string describe(const SourceLocation& location) {
  if (location.code) return symbol_of(location.code, true).location;
  return location.file ? shortened(location.file) + ":" + std::to_string(location.line)
                       : "an unknown location";
}

std::string name_of_function(const void* code) { return symbol_of(code, false).function; }

}  // namespace gradus::cuda::emulated
