// The secret of a user's jobs, where nobody gives one: it is in a file that nobody else may read.
#pragma once

#include <string>

namespace gradus::dist::internal {

struct UserToken {
  std::string token;
  std::string file;  // it is from
};

// Reads the token in $HOME/.gradus, else in $XDG_RUNTIME_DIR/gradus, else in /tmp/gradus-UID: the first
// folder that is the user's own and that nobody else may write. Who comes first makes it. Ranks on
// several hosts, whose store is at `remote_host` ("": they are on one host), need a home folder on a file
// system between hosts.
// Errors: FileError for a file that others may read, or that is of another user; ValueError when there is no
// such folder, which says to set GRADUS_TOKEN.
UserToken user_token(const char* op, const std::string& remote_host = "");

}  // namespace gradus::dist::internal
