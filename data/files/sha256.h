// SHA-256 digests of byte streams and files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace gradus::data {

// Incremental SHA-256.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;

  void update(const void* bytes, int64_t n);
  // Returns the digest as 64 lower-case hexadecimal digits. Call once.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the digest of a file.
// Errors: FileError.
std::string sha256_of_file(const std::filesystem::path& path);
// Returns the digest of a gzip file's decompressed content, or of the file itself if it is not gzip.
// Errors: FileError, also for damaged gzip data and for content of more than `max_bytes`.
std::string sha256_of_content(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace gradus::data
