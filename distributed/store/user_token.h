// The default token of a user's jobs, in a file that only the user may read. A token is a secret by which the
// ranks of a job prove to the job's store that they belong to the user.
#pragma once

#include <string>

namespace gradus::dist::internal {

struct UserToken {
  std::string token;  // 64 lower-case hexadecimal digits
  std::string file;   // path of the token's file
};

// Returns the token in $HOME/.gradus, $XDG_RUNTIME_DIR/gradus or /tmp/gradus-UID: in the first of these
// folders that is the user's own and that nobody else may write. The first process makes the token. `op` is
// the name in errors. `remote_host` is the store's host for ranks on several hosts, or "" for ranks on one
// host. Ranks on several hosts need a home folder on a file system that the hosts share.
// Errors: FileError for a file that others may read, or that belongs to another user; ValueError if there is
// no such folder (its text says to set GRADUS_TOKEN).
UserToken user_token(const char* op, const std::string& remote_host = "");

}  // namespace gradus::dist::internal
