// For deadlock detection: whether all other threads of this process block on each other, by /proc/self/task.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradus::dist::internal {

// Names the calling thread "gradus/<name>", which threads that it starts inherit: such threads never make
// collective calls on their own.
void name_framework_thread(const std::string& name);

// Examines all threads of this process, except the `known` ones (gettid numbers) and those named by
// name_framework_thread. Returns 0 if one of them runs or waits for anything but another thread of this
// process, such as time, a file, a connection or another process, or if /proc cannot be read. Else returns a
// hash of the threads' context-switch counts; equal results: none of them has run in between.
uint64_t blocked_threads_id(const std::vector<int>& known);

}  // namespace gradus::dist::internal
