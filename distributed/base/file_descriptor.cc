// POSIX helpers: closing a FileDescriptor, the text of an errno value, reading and writing whole files, and random
// hexadecimal digits. Interrupted reads and writes (EINTR) are repeated.
#include "gradus/distributed/base/file_descriptor.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::dist::internal {

void FileDescriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string errno_text(int error) { return std::generic_category().message(error); }

// Also reads files of /proc, whose size is unknown before the read. A read error ends the content early.
std::string read_file(const std::string& path, size_t limit) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  char part[32 << 10];
  while (file && content.size() < limit) {
    const ssize_t n = ::read(file.fd(), part, std::min(sizeof part, limit - content.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    content.append(part, size_t(n));
  }
  return content;
}

bool write_all(int fd, std::string_view bytes) {
  // Blocks SIGXFSZ on this thread: a write beyond `ulimit -f` fails with EFBIG, and does not end the process.
  const gradus::internal::BlockedSignals blocked;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(size_t(n));
  }
  return true;
}

std::string to_hex(std::string_view bytes) {
  std::string digits;
  for (const unsigned char byte : bytes)
    for (const int digit : {byte >> 4, byte & 15}) digits += "0123456789abcdef"[digit];
  return digits;
}

// The kernel's cryptographic generator. A request of at most 256 bytes (512 digits) is never filled in part.
// Errors: StateError if getrandom fails.
std::string random_hex(const char* op, size_t count) {
  std::string bytes(count / 2, '\0');
  if (getrandom(bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    throw StateError(op, "the system has no random numbers: ", errno_text());
  return to_hex(bytes);
}

}  // namespace gradus::dist::internal
