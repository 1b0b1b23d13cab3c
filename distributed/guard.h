// Guard: a small process beside the launcher that ends all of the job's processes when the launcher is gone,
// by SIGKILL too. It is this program, started again; guard.cc takes over before main().
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradus::dist::internal {

class Guard {
 public:
  // `id`: what the environments of the job's processes carry (processes.h).
  explicit Guard(const std::string& id);
  // Sends it away; whoever is left of the job stays.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // The job's process groups from now on. A guard that was killed is no error.
  void watch(const std::vector<pid_t>& groups);

 private:
  void send(char kind, const std::string& content);
  pid_t pid_ = -1;
  int socket_ = -1;
};

}  // namespace gradus::dist::internal
