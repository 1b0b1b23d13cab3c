// Blocks between unreadable pages, which GRADUS_GUARD asks for: a kernel that reads or writes beyond its
// memory ends the program there and then.
#pragma once

#include <cstdint>

namespace gradus {

// Whether the variable GRADUS_GUARD is set: 1 or after, so that each block ends where an unreadable page
// begins, or before, so that it begins where one ends. Read once.
// Errors: ValueError when it has another value.
bool is_guarding();

// Returns `bytes` (> 0) of memory full of 0xff, which is NaN in every floating dtype, or null when the system
// has no more. A block that ends at a page is aligned to the largest power of two that divides `bytes`,
// others to a page.
void* map_guarded(int64_t bytes);
// Returns the memory to the system, so that a later access is a fault too. Ends the program with a message
// when something was written to what lies between the block and the other page.
void unmap_guarded(void* p, int64_t bytes) noexcept;

// Blocks that there are.
int64_t guarded_blocks();

}  // namespace gradus
