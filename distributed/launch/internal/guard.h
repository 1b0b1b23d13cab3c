// Guard: a small process beside the launcher. It ends all of the job's processes when the launcher is gone,
// even after a SIGKILL. It is this program, started again; guard.cc takes over before main().
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "gradus/distributed/base/file_descriptor.h"

namespace gradus::dist::internal {

class Guard {
 public:
  // `id`: what the environments of the job's processes carry. `unrelated`: processes below the launcher that
  // are not of the job (processes.h).
  Guard(const std::string& id, const std::vector<pid_t>& unrelated);
  // Ends the guard. Processes of the job that are left stay.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Returns the socket to the guard. A process that spawn() starts announces itself there, before it can
  // start others. A guard that was killed is no error.
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
