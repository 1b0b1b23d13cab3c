// Helpers of the tests of files: raw reads and writes, tensors of known bytes, a limit of file sizes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/tensor/tensor.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::io {

// Reads and writes whole files without the code under test.
inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void spit(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::remove(
      path);  // a new file: some file systems flush one that is truncated and written again
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

// The elements' bytes of a row-major tensor.
inline std::string bytes_of(const Tensor& x) {
  return {static_cast<const char*>(x.raw_ptr()), static_cast<size_t>(x.nbytes())};
}

// A tensor whose bytes are 1, 2, 3, ... (bool: 1, 0, 1, 0, ...).
inline Tensor counted(const Shape& shape, DType dtype) {
  Tensor x = empty(shape, {.dtype = dtype});
  auto* p = static_cast<unsigned char*>(x.raw_ptr());
  for (int64_t i = 0; i < x.nbytes(); ++i)
    p[i] = static_cast<unsigned char>(dtype == DType::kBool ? (i + 1) % 2 : i + 1);
  return x;
}

inline bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && bytes_of(a) == bytes_of(b);
}

inline constexpr DType kAllDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                                       DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};

// Limits the size of files that this process writes while alive (RLIMIT_FSIZE). A write beyond the limit
// raises SIGXFSZ, which by default ends the process.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(int64_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{static_cast<rlim_t>(bytes), before_.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("setrlimit");
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace gradus::io
