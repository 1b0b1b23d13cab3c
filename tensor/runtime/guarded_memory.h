// Blocks between unreadable pages, for the variable GRADUS_GUARD. A kernel that reads or writes beyond its
// memory ends the program at that access.
#pragma once

#include <cstdint>

namespace gradus {

// Returns whether GRADUS_GUARD is set. With the value 1 or `after` each block ends where an unreadable page
// begins; with `before` it begins where one ends. The variable is read once.
// Errors: ValueError for another value, except that 0 counts as not set.
bool is_guarding();

// Returns `bytes` (> 0) of memory filled with 0xff, which is NaN in every floating dtype. Returns null when
// the system has no more memory. A block that ends at a page is aligned to the largest power of two that
// divides `bytes`, others to a page.
void* map_guarded(int64_t bytes);
// Returns the memory to the system, so that a later access faults too. Ends the program with a message when
// something was written to the gap between the block and the page at its other end.
void unmap_guarded(void* p, int64_t bytes) noexcept;

// Returns the number of blocks.
int64_t guarded_blocks();

}  // namespace gradus
