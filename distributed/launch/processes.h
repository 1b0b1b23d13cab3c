// Processes of a launcher: how one is started, and how all are found and ended; and the GPUs that they may use.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist::internal {

struct SpawnOptions {
  std::string path;                 // of the program
  std::vector<std::string> argv;    // argv[0] is the name it sees
  std::vector<std::string> env;     // NAME=value: the whole environment
  int in = -1, out = -1, err = -1;  // its standard streams; -1: this process's
  std::vector<int> inherit;         // further descriptors that the program keeps
  int guard = -1;                   // a socket: the process first sends kStarted and its id there
  // true: in a session of its own. false: in a process group of its own, and killed when the calling thread
  // ends for any reason.
  bool outlives_us = false;
};

inline constexpr char kStarted = 's';

// Starts a program. A text file without #! is run by the shell.
// Errors: ValueError naming the program if it cannot be run.
pid_t spawn(const char* op, const SpawnOptions& options);

// Returns the file that a shell would run for `name`.
// Errors: ValueError if there is none.
std::string find_program(const char* op, const std::string& name);

// A process. Its start time tells it from a later process with the same id.
struct Process {
  pid_t pid = 0;
  uint64_t start = 0;
};

// While one lives, orphans among this process's descendants become its children. So no process that a rank
// starts escapes, whatever its session and environment.
class Adoption {
 public:
  Adoption();
  ~Adoption();
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

  // Returns the processes that descended from this process before.
  const std::vector<pid_t>& strangers() const { return strangers_; }

 private:
  int before_ = 0;
  std::vector<pid_t> strangers_;
};

// What identifies a job's processes. A process belongs to the job if any of these holds for it or for an
// ancestor. Guards and this process do not belong to the job.
struct Family {
  std::string id;             // a text in the environment that they were started with
  std::vector<pid_t> groups;  // process groups
  // A launcher with an Adoption: its children in process groups other than its own belong to the
  // job, except strangers.
  pid_t adopter = 0;
  std::vector<pid_t> strangers;
  std::vector<Process> adopted;  // processes that were adopted earlier
};

// Returns the family's living processes.
std::vector<pid_t> find_processes(const Family& family);

// Kills the family's processes, and those that they start meanwhile, until none is left or time is over.
// Returns those that are left.
std::vector<pid_t> kill_processes(const Family& family, Milliseconds limit);

// Returns the adopter's children that belong to the family, living or ended.
std::vector<Process> adopted_processes(const Family& family);

// Reaps adopted processes that have ended, except those in `except`.
void reap_adopted(const Family& family, const std::vector<pid_t>& except);

// Returns the state letter of /proc/PID/stat ('R', 'S', 'T' stopped, 'Z' ended); 0 if there is
// no such process.
char process_state(pid_t pid);

// Returns how many NVIDIA GPUs programs started here may use: those of CUDA_VISIBLE_DEVICES if it
// is set, else all.
int gpu_count();

}  // namespace gradus::dist::internal
