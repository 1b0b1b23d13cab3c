// FileDescriptor, an owner of a POSIX file descriptor, and wrappers of system calls: texts of errno, reading
// and writing whole files, cryptographic random numbers.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace gradus::dist::internal {

// Owns the descriptor that its constructor gets, and closes it when destroyed. Movable, not copyable. Without
// a descriptor, fd() is -1 and the object converts to false, as after a failed FileDescriptor(::open(...)).
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  // Swaps: `o` closes the descriptor that this object had.
  FileDescriptor& operator=(FileDescriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();  // does nothing without a descriptor

 private:
  int fd_ = -1;
};

// Returns the text of an error number: "Connection refused".
std::string errno_text(int error = errno);

// Returns the first `limit` bytes of a file. Returns "" if the file cannot be opened, and the bytes read so
// far if a read fails. Also reads files of /proc, whose size is unknown.
std::string read_file(const std::string& path, size_t limit = size_t(-1));
// Writes all bytes to a blocking descriptor; repeats after partial writes and EINTR. Returns false and sets
// errno if a write fails. Blocks SIGXFSZ, so beyond the limit of `ulimit -f` errno is EFBIG and no signal
// ends the process. Does not block SIGPIPE.
bool write_all(int fd, std::string_view bytes);

// Returns two lower-case hexadecimal digits for each byte.
std::string to_hex(std::string_view bytes);
// Returns `count` hexadecimal digits from getrandom(2), for tokens and nonces. `count` is even, at most 512.
// Errors: StateError from `op` if the system has no random numbers.
std::string random_hex(const char* op, size_t count);

}  // namespace gradus::dist::internal
