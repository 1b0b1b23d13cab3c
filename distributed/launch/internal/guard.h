// Guard: a watchdog process beside the launcher. When the launcher ends without having ended the guard, even
// by a SIGKILL, the guard kills all of the job's processes. The guard runs the launcher's own program file; a
// function of guard.cc that runs before main() takes over. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "gradus/distributed/base/file_descriptor.h"

namespace gradus::dist::internal {

class Guard {
 public:
  // Starts the guard. `id`: a text that the environments of the job's processes contain, by which the guard
  // finds them. `unrelated`: the launcher's descendants outside of the job (SubreaperScope::unrelated).
  // Errors: ValueError if the system has no socket or process left.
  Guard(const std::string& id, const std::vector<pid_t>& unrelated);
  // Ends the guard, which then kills nothing. Waits for its exit for at most about a second.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Returns the socket to the guard, for ProcessOptions::guard: a process that start_process() starts sends its pid
  // there, before it can start others. Sending does not fail if the guard has been killed.
  int socket() const { return socket_.fd(); }
  // Removes the announced processes, all of which have ended, from the guard's list.
  void clear_processes();
  pid_t pid() const { return pid_; }

 private:
  void send(char kind, const std::string& content);
  pid_t pid_ = -1;
  FileDescriptor socket_;
};

}  // namespace gradus::dist::internal
