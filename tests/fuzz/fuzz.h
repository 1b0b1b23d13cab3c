// Helpers of the fuzz targets. Each target is a file NAME_fuzz.cc that defines seeds() and
// LLVMFuzzerTestOneInput(); tools/fuzz.sh builds it with libFuzzer and sanitizers, and NAME_fuzz_test replays
// seeds and variations of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/tensor/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace gradus::fuzz {

// Returns the initial inputs of the search: small ones of every kind.
std::vector<std::string> seeds();

// Aborts the process unless `ok`, which the fuzzer reports.
#define FUZZ_CHECK(ok) ::gradus::fuzz::check(ok, #ok, __FILE__, __LINE__)
void check(bool ok, const char* condition, const char* file, int line);

// Calls read(). Returns true if it succeeds, false for a FileError. Other exceptions end the process.
template <class F> bool survives(const F& read) {
  try {
    read();
    return true;
  } catch (const FileError& e) {
    FUZZ_CHECK(std::string_view(e.what()).starts_with("["));
    return false;
  }
}

// Reads each byte, so that sanitizers detect invalid or uninitialized memory.
void touch(const void* data, int64_t bytes);

// A file in memory that other code opens by its path.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void set(std::string_view content) const;

 private:
  int fd_;
  std::filesystem::path path_;
};

// Returns the contents of the files in `folder` of the repository whose names have the ending.
std::vector<std::string> contents(const std::filesystem::path& folder, std::string_view ending);

}  // namespace gradus::fuzz
