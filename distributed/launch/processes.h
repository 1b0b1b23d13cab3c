// Processes of a launcher: how one is started, and how all are found and ended, whatever they have become.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist::internal {

struct SpawnOptions {
  std::string path;                 // what is executed
  std::vector<std::string> argv;    // argv[0] is the name it sees
  std::vector<std::string> env;     // NAME=value, all of it
  int in = -1, out = -1, err = -1;  // its standard streams; -1: this process's
  std::vector<int> inherit;         // further descriptors that it keeps
  int guard = -1;            // a socket: before anything else it sends kStarted and its process id there
  bool outlives_us = false;  // in a session of its own; else in a process group of its own, and killed when
                             // the calling thread ends, by whatever
};

inline constexpr char kStarted = 's';

// Starts a program; a text file without #! is run by the shell.
// Errors: ValueError naming it when it cannot be run.
pid_t spawn(const char* op, const SpawnOptions& options);

// The file that a shell would run for `name`.
// Errors: ValueError when there is none.
std::string find_program(const char* op, const std::string& name);

// A process; its start tells it from a later one that gets its number.
struct Process {
  pid_t pid = 0;
  uint64_t start = 0;
};

// While it lives, orphans below this process become its children: nothing that a rank starts gets away, in
// whatever session and environment.
class Adoption {
 public:
  Adoption();
  ~Adoption();
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

  // What descended from this process before.
  const std::vector<pid_t>& strangers() const { return strangers_; }

 private:
  int before_ = 0;
  std::vector<pid_t> strangers_;
};

// What tells a job's processes from others: any of these, or that they descend from such. Guards are none,
// nor is this process.
struct Family {
  std::string id;             // in the environment they were started with
  std::vector<pid_t> groups;  // process groups
  // A launcher that adopts: its children in process groups other than its own, but for strangers.
  pid_t adopter = 0;
  std::vector<pid_t> strangers;
  std::vector<Process> adopted;  // earlier
};

// Those that live.
std::vector<pid_t> find_processes(const Family& family);

// Kills them, and those that they started meanwhile, until none is left or the time is over;
// returns those left.
std::vector<pid_t> kill_processes(const Family& family, Milliseconds limit);

// The adopter's children of the family, living or ended.
std::vector<Process> adopted_processes(const Family& family);

// Takes the exit codes of those that have ended, but for these.
void reap_adopted(const Family& family, const std::vector<pid_t>& except);

// The state letter of /proc/PID/stat ('R', 'S', 'T' stopped, 'Z' ended); 0 when there is no such process.
char process_state(pid_t pid);

}  // namespace gradus::dist::internal
