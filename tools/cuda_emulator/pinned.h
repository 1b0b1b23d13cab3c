// Registry of pinned (page-locked) host memory, which kernels may access, and whose asynchronous copies do
// not block the host. Thread-safe.
#pragma once

#include <cstddef>

namespace gradus::cuda::emulated {

// Returns false if a part of the range is pinned already.
bool pin(const void* p, size_t bytes);
// Returns the size of the range that begins at p, now unpinned; 0 if none does.
size_t unpin(const void* p);
// Returns whether all of [p, p + bytes) lies in one pinned range.
bool is_pinned(const void* p, size_t bytes);
// Returns whether p lies in a pinned range.
bool is_pinned(const void* p);
// How many ranges there are. For tests.
size_t count_pinned();

}  // namespace gradus::cuda::emulated
