// FileStore: a store in one file on a file system that all ranks see; for file:// initialization.
#pragma once

#include <memory>
#include <string>

#include "gradus/distributed/base/store.h"

namespace gradus::dist {

// Opens or makes the file, which is an append-only log under a file lock; a malformed one is a StoreError.
// Errors: FileError when it cannot be opened; when it is not this user's own file, which nobody else may
// read or write; when its folder is another user's (root's may be), or others may write that (unless it is
// sticky as /tmp is).
std::shared_ptr<Store> open_file_store(const std::string& path, Milliseconds timeout);

}  // namespace gradus::dist
