// Processes of a launcher (Linux): starts a program by fork and exec, and finds and kills all processes of a
// job, including descendants that have changed their session, through /proc and the child subreaper of
// prctl(2). Also counts the GPUs that the processes may use.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/launch/internal/numa_binding.h"

namespace gradus::dist::internal {

struct ProcessOptions {
  std::string path;                 // of the program
  std::vector<std::string> argv;    // argv[0] is the name that the program sees
  std::vector<std::string> env;     // NAME=value: the whole environment
  int in = -1, out = -1, err = -1;  // descriptors of its standard streams; -1: this process's
  std::vector<int> inherit;         // further descriptors that the program keeps
  // Socket of the Guard, the process that ends the job when the launcher dies (internal/guard.h): the started
  // process first sends kStarted and its pid there. -1: no guard.
  int guard = -1;
  // true: the program starts in a new session. false: in a process group of its own, and killed when the
  // calling thread ends for any reason (PR_SET_PDEATHSIG).
  bool start_new_session = false;
  std::optional<NumaBinding> numa = {};  // of the program
};

inline constexpr char kStarted = 's';

// Starts a program and returns its pid once exec has succeeded; the caller reaps it with waitpid. A text file
// without #! is run by the shell. `op` is the name in errors.
// Errors: ValueError naming the program if it cannot be run.
pid_t start_process(const char* op, const ProcessOptions& options);

// Returns the file that a shell would run for `name`: searches PATH if `name` has no slash.
// Errors: ValueError if there is none.
std::string find_program(const char* op, const std::string& name);

// A process. Its start time distinguishes it from a later process with the same pid.
struct Process {
  pid_t pid = 0;
  uint64_t start = 0;  // in clock ticks since boot
};

// While a SubreaperScope exists, this process is a child subreaper: orphans among its descendants become its
// children. So no process that a rank starts escapes, whatever its session and environment.
class SubreaperScope {
 public:
  SubreaperScope();
  ~SubreaperScope();
  SubreaperScope(const SubreaperScope&) = delete;
  SubreaperScope& operator=(const SubreaperScope&) = delete;

  // Returns this process and the descendants that it had when the SubreaperScope was made. None of these
  // belongs to the job.
  const std::vector<pid_t>& unrelated() const { return unrelated_; }

 private:
  int previous_subreaper_ = 0;  // the process's previous PR_SET_CHILD_SUBREAPER
  std::vector<pid_t> unrelated_;
};

// Criteria for the processes of a job. A process belongs to the job if one of the members matches the process
// or an ancestor. Guards (internal/guard.h) and this process do not belong to the job.
struct JobProcesses {
  std::string id;             // a text that the environments of the job's processes contain; "": not used
  std::vector<pid_t> groups;  // process groups
  // Pid of a launcher with a SubreaperScope. Children of the launcher in process groups other than the
  // launcher's belong to the job, except those in `unrelated`. 0: not used.
  pid_t subreaper = 0;
  std::vector<pid_t> unrelated;
  std::vector<Process> adopted;  // processes that were adopted earlier
};

// Returns the job's living processes.
std::vector<pid_t> find_processes(const JobProcesses& job);

// Sends SIGKILL to the job's processes, and to those that they start meanwhile, until none is left or
// `limit` has passed. Returns those that are left.
std::vector<pid_t> kill_processes(const JobProcesses& job, Milliseconds limit);

// Returns the subreaper's children that belong to the job, living or ended.
std::vector<Process> adopted_processes(const JobProcesses& job);

// Reaps adopted processes that have ended, except those in `except`.
void reap_adopted(const JobProcesses& job, const std::vector<pid_t>& except);

// Returns the state letter of /proc/PID/stat: 'R' running, 'S' sleeping, 'T' stopped, 'Z' zombie. Returns 0
// if there is no such process.
char process_state(pid_t pid);

// Returns how many NVIDIA GPUs programs started here may use: the number of devices /dev/nvidiaN, or of
// entries in CUDA_VISIBLE_DEVICES if it is set and shorter. Does not call CUDA.
int gpu_count();

}  // namespace gradus::dist::internal
