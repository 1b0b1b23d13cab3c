// PrivateFolder: a folder of the user's own, for small files that nobody else may read or write.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/store/socket.h"

namespace gradus::dist::internal {

class PrivateFolder {
 public:
  // Returns where such a folder may be, the best place first: in $HOME, in $XDG_RUNTIME_DIR, or
  // /tmp/gradus-UID. For several hosts, returns only places where other hosts see the same files.
  static std::vector<std::string> paths(bool several_hosts);

  // Opens a folder. Returns nothing, and sets `why`, unless it is the user's own and nobody
  // else may write it.
  static std::optional<PrivateFolder> open(const std::string& path, std::string* why);
  // Does the same, and makes the folder if it is not there.
  static std::optional<PrivateFolder> make(const std::string& path, std::string* why);

  // Returns the first `max_bytes` bytes, or nothing when there is no such file.
  // Errors: FileError for a file that is not this user's, or that others may read.
  std::optional<std::string> read(const char* op, const char* name, size_t max_bytes) const;

  // Makes the file, unless it exists. Readers never see it incomplete. Returns false, and sets `why`, if the file
  // cannot be made.
  bool write(const char* op, const char* name, std::string_view content, std::string* why) const;

  std::string path_of(const char* name) const { return path_ + '/' + name; }

 private:
  PrivateFolder(std::string path, Socket folder) : path_(std::move(path)), folder_(std::move(folder)) {}

  std::string path_;
  Socket folder_;
};

// Returns `count` hexadecimal digits that nobody can guess.
std::string random_digits(const char* op, size_t count);

}  // namespace gradus::dist::internal
