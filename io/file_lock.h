// FileLock: a lock file with exclusive access for the writers of one file, in any thread, process and host.
// On a file system without flock, nothing is exclusive.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace gradus::io::internal {

// Locks NAME.lock in the folder of the file NAME. NAME.lock contains the writer's process, host and time, and
// is removed with the lock. The next writer takes over a NAME.lock that a killed writer has left.
class FileLock {
 public:
  // Waits for the lock of the file `path`. `growing` is the temporary file that each writer of `path` fills:
  // a writer makes progress while it changes. `op` is the name of the operation in errors.
  // Errors: FileError naming the writer (process, host, time) after it has made no progress for
  // `lock_timeout`; FileError if the lock file cannot be created.
  FileLock(const std::filesystem::path& path, const std::filesystem::path& growing, const std::string& op,
           std::chrono::milliseconds lock_timeout);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  // Tries once to create and lock the file, or removes that of a killed writer. Returns whether it is locked.
  bool try_acquire();
  const std::filesystem::path name_;  // of the lock file
  int fd_ = -1;                       // of the lock file
};

// Returns whether the open file `fd` is the one that currently has this name.
bool is_named(int fd, const std::filesystem::path& name);

}  // namespace gradus::io::internal
