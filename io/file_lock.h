// FileLock: makes the writers of one file take turns, in any process and on any host.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace gradus::io::internal {

// Holds NAME.lock beside the file NAME. NAME.lock says who writes, and is removed with the lock. A killed
// writer leaves it behind, and the next writer takes over.
class FileLock {
 public:
  // Waits for other writers. `growing` is the file that they write to. A writer makes progress while
  // that file grows.
  // Errors: FileError naming the holder (process, host, since when) once it has made no progress for
  // `patience`; FileError when the lock's file cannot be made.
  FileLock(const std::filesystem::path& path, const std::filesystem::path& growing, const std::string& op,
           std::chrono::milliseconds patience);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  bool try_take();

  const std::filesystem::path name_;
  int fd_ = -1;
};

// Returns whether `fd` is the file that has this name.
bool is_named(int fd, const std::filesystem::path& name);

}  // namespace gradus::io::internal
