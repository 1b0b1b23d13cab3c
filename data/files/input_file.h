// InputFile: reads a file from outside, plain or gzip (told apart by content), never more than the
// caller asks for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace gradus::data {

class InputFile {
 public:
  // Errors: FileError naming `op` and the file: missing, not a regular file, unreadable.
  InputFile(const std::filesystem::path& path, std::string_view op);
  ~InputFile();
  InputFile(InputFile&&) noexcept;

  // Reads up to `bytes` (unpacked) bytes; fewer only at the end.
  // Errors: FileError for a read error, and for gzip data that is damaged, cut short or followed
  // by something else.
  int64_t read(void* out, int64_t bytes);

  const std::filesystem::path& path() const;
  bool is_gzip() const;
  int64_t file_size() const;
  // Returns a name of the content on this host: device, inode, size and time of the last change.
  std::string identity() const;
  // Returns the most bytes that the content can unpack to: the file's size, or 1032 times that for gzip, the
  // limit of deflate.
  int64_t max_content_size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradus::data
