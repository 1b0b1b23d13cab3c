// Helpers of the fuzz targets.
#include "gradus/tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace gradus::fuzz {

void check(bool ok, const char* condition, const char* file, int line) {
  if (ok) return;
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
  std::abort();
}

void touch(const void* data, int64_t bytes) {
  unsigned sum = 0;
  for (int64_t i = 0; i < bytes; ++i) sum += static_cast<const uint8_t*>(data)[i];
  [[maybe_unused]] volatile unsigned sink = sum;
}

MemoryFile::MemoryFile()
    : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
  FUZZ_CHECK(fd_ >= 0);
}

MemoryFile::~MemoryFile() { ::close(fd_); }

void MemoryFile::set(std::string_view content) const {
  FUZZ_CHECK(::ftruncate(fd_, 0) == 0);
  FUZZ_CHECK(::pwrite(fd_, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
}

std::vector<std::string> contents(const std::filesystem::path& folder, std::string_view ending) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().native().ends_with(ending)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> all;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return all;
}

}  // namespace gradus::fuzz
