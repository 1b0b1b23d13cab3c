// Asks the system whether any other thread of this process could still do something.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradus::dist::internal {

// Names the calling thread, and the threads that it starts, as threads of Gradus that never make a
// call on their own.
void name_framework_thread(const std::string& name);

// Looks at all threads of this process, except the `known` ones (thread numbers) and those named by
// name_framework_thread. Returns 0 if one of them runs, or waits for anything but another thread of this process:
// time, a file, a connection, another process. Otherwise returns a number that stays the same as long as none
// of them has moved. Returns 0 if the system does not tell.
uint64_t blocked_threads_id(const std::vector<int>& known);

}  // namespace gradus::dist::internal
