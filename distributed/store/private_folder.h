// Folders of the user's own, for small files that nobody else may read or write.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/store/socket.h"

namespace gradus::dist::internal {

class PrivateFolder {
 public:
  // Where they may be, the best one first: in $HOME, else in $XDG_RUNTIME_DIR, else /tmp/gradus-UID. For
  // several hosts: only where others see the same files.
  static std::vector<std::string> paths(bool several_hosts);

  // Nothing with `why` set unless it is the user's own, which nobody else may write.
  static std::optional<PrivateFolder> open(const std::string& path, std::string* why);
  // The same, of a folder that need not be there yet.
  static std::optional<PrivateFolder> make(const std::string& path, std::string* why);

  struct File {
    std::string content;
    std::chrono::system_clock::time_point time;  // it was written
  };
  // Returns the first `most` bytes, or nothing when there is no such file.
  // Errors: FileError for a file that is not this user's, or that others may read.
  std::optional<File> read(const char* op, const char* name, size_t most) const;

  enum class Existing { kKeep, kReplace };
  // Makes the file, complete from its first moment. An existing one stays, or is replaced; then the file may
  // be lost when the host loses power. False with `why` set when that cannot be.
  bool write(const char* op, const char* name, std::string_view content, Existing existing,
             std::string* why) const;

  std::string path_of(const char* name) const { return path_ + '/' + name; }

 private:
  PrivateFolder(std::string path, Socket folder) : path_(std::move(path)), folder_(std::move(folder)) {}

  std::string path_;
  Socket folder_;
};

// So many hexadecimal digits that nobody can guess.
std::string random_digits(const char* op, size_t count);

}  // namespace gradus::dist::internal
