// Allocation between guard pages, enabled by the environment variable GRADUS_GUARD, for debugging: a kernel that
// accesses memory out of bounds receives SIGSEGV at that access (like Electric Fence).
#pragma once

#include <cstdint>

namespace gradus {

// Returns whether GRADUS_GUARD is set. With the value 1 or `after` each block ends at an inaccessible page; with
// `before` it begins at the end of one; 0 is the same as not set. The variable is read once.
// Errors: ValueError for other values.
bool is_guarding();

// Returns `bytes` (> 0) of memory filled with 0xff, NaN in every floating dtype; null if memory is short.
// Alignment: with `before` a page, with `after` the largest power of two that divides `bytes`.
void* map_guarded(int64_t bytes);
// Unmaps memory of map_guarded(bytes), so that later accesses fault too. Aborts with a message if the padding
// between the block and the guard page at its other end was written to.
void unmap_guarded(void* p, int64_t bytes) noexcept;

// Returns the number of live blocks.
int64_t guarded_blocks();

}  // namespace gradus
