// InputFile: reads an untrusted file, plain or gzip (detected by content), in parts that the caller limits.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gradus::data {
namespace internal {
std::string hex(std::span<const uint8_t> bytes);  // two lower-case digits per byte: "1f8b"
}

class InputFile {
 public:
  // Errors: FileError naming `op` and the file: missing, not a regular file, unreadable.
  InputFile(const std::filesystem::path& path, std::string_view op);
  ~InputFile();
  InputFile(InputFile&&) noexcept;

  // Reads the next `bytes` decompressed bytes into `out`, fewer only at the end. Returns their number.
  // Errors: FileError for a read error, and for gzip data that is damaged, truncated or followed by other
  // data.
  int64_t read(void* out, int64_t bytes);

  const std::filesystem::path& path() const;
  bool is_gzip() const;
  int64_t file_size() const;  // in bytes, as stored
  // Returns an identifier of the content on this host: device, inode, size, times of modification and change.
  std::string identity() const;
  // Returns an upper bound of the content's decompressed size: the file's size, for gzip times 1032, the
  // maximal compression ratio of deflate.
  int64_t max_content_size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradus::data
