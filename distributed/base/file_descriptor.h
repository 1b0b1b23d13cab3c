// FileDescriptor owns a descriptor. Functions on files, system errors and random digits.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace gradus::dist::internal {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

// Returns the text of an error number: "connection refused".
std::string errno_text(int error = errno);

// Returns at most `limit` bytes of a file; "" if it cannot be read.
std::string read_file(const std::string& path, size_t limit = size_t(-1));
// Returns false, with errno, if not all bytes can be written. A file beyond `ulimit -f` raises no signal.
bool write_all(int fd, std::string_view bytes);

// Returns two hexadecimal digits for each byte.
std::string to_hex(std::string_view bytes);
// Returns `count` (even) hexadecimal digits that nobody can guess.
std::string random_digits(const char* op, size_t count);

}  // namespace gradus::dist::internal
