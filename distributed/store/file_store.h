// FileStore: a key-value store in one file on a file system that all ranks see. For file:// initialization.
#pragma once

#include <memory>
#include <string>

#include "gradus/distributed/base/store.h"

namespace gradus::dist {

// Opens or makes the file, which is an append-only log under a file lock. `timeout` is the store's
// default_timeout(), after which waiting for the lock is a TimeoutError. Thread-safe.
// Errors, also of later calls: StoreError for a malformed file or one beyond 4 GiB; FileError if the file
// cannot be read or written. FileError here if the file cannot be opened, belongs to another user, or can be
// read or written by others; also if its folder belongs to another user except root, or can be written by
// others and is not sticky as /tmp is.
std::shared_ptr<Store> open_file_store(const std::string& path, Milliseconds timeout);

}  // namespace gradus::dist
