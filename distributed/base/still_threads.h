// Whether the rest of this process could still do something, as the system sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradus::dist::internal {

// The name of the calling thread from now on, and of those that it starts: one that never brings a
// call by itself.
void name_own_thread(const std::string& name);

// Looks at all threads of this process but the `known` ones, by their numbers, and our own. Returns 0 when
// one of them runs, or waits for anything that is not another thread of this process: time, a file, a
// connection, another process. Else a number that is the same as long as none of them has moved. Where the
// system does not tell, it is 0.
uint64_t still_threads(const std::vector<int>& known);

}  // namespace gradus::dist::internal
