// The default token of a user's jobs, in a file that nobody else may read.
#pragma once

#include <string>

namespace gradus::dist::internal {

struct UserToken {
  std::string token;
  std::string file;  // where the token is from
};

// Returns the token in $HOME/.gradus, $XDG_RUNTIME_DIR/gradus or /tmp/gradus-UID: in the first of these
// folders that is the user's own and that nobody else may write. The first process makes the token.
// `remote_host` is the store's host for ranks on several hosts, or "" for ranks on one host. Ranks on several
// hosts need a home folder on a file system that the hosts share.
// Errors: FileError for a file that others may read, or that belongs to another user; ValueError if there is
// no such folder (its text says to set GRADUS_TOKEN).
UserToken user_token(const char* op, const std::string& remote_host = "");

}  // namespace gradus::dist::internal
