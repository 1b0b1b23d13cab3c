// Processes of a launcher: how one is started, and how all are found and ended, whatever they have become.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "gradus/distributed/deadline.h"

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

// Starts a program; a text file without #! is run by the shell. Errors: ValueError naming it when it cannot
// be run.
pid_t spawn(const char* op, const SpawnOptions& options);

// The file that a shell would run for `name`. Errors: ValueError when there is none.
std::string find_program(const char* op, const std::string& name);

// Living processes that have `id` in the environment they were started with (as those have that a rank
// started, in sessions of their own or not), are in one of the process groups, or descend from such. Not
// guards, nor this process.
std::vector<pid_t> find_processes(const std::string& id, const std::vector<pid_t>& groups);

// Kills them, and those that they started meanwhile, until none is left or the time is over; returns those
// left.
std::vector<pid_t> kill_processes(const std::string& id, const std::vector<pid_t>& groups,
                                  Milliseconds limit);

// The state letter of /proc/PID/stat ('R', 'S', 'T' stopped, 'Z' ended); 0 when there is no such process.
char process_state(pid_t pid);

}  // namespace gradus::dist::internal
