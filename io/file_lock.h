// FileLock: writers of one file take turns, in whatever process and on whatever host they are.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace gradus::io::internal {

// Holds NAME.lock beside the file NAME. It says who writes, and is gone with the lock. A writer that was
// killed leaves it behind; the next one takes over.
class FileLock {
 public:
  // Waits for other writers. `growing` is the file that they write to: while it grows, they get on.
  // Errors: FileError naming the holder (process, host, since when) once it has not got on for `patience`;
  // FileError when the lock's file cannot be made.
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

// Whether `fd` is the file that has this name.
bool is_named(int fd, const std::filesystem::path& name);

}  // namespace gradus::io::internal
