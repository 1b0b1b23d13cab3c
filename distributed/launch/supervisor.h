// supervise: runs this machine's part of a job: starts a process per rank, watches the processes, ends them
// all after the first failure, and begins again if restarts are left. For launcher() and gradus-run.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/launch/internal/node_rendezvous.h"
#include "gradus/distributed/launch/internal/numa_binding.h"

namespace gradus::dist::internal {

// Bits of SupervisorOptions::redirects and tee: a rank's streams.
enum : int { kStdout = 1, kStderr = 2 };

struct SupervisorOptions {
  const char* op = "launcher";    // the name in messages
  std::string path;               // of the program that every rank runs
  std::vector<std::string> argv;  // with the program's name as argv[0]
  bool pass_local_rank = false;   // adds --local-rank=N
  int nproc = 1;                  // ranks on this machine
  RendezvousOptions rendezvous;
  std::string run_id = "none";  // TORCHELASTIC_RUN_ID
  std::string role = "default";
  std::optional<NumaMode> numa_binding = {};  // none: ranks may use all CPUs
  int threads = 0;  // OMP_NUM_THREADS; 0: keeps it if set, else usable cores / nproc

  std::vector<std::string> variables;  // NAME=value: further environment variables of the ranks
  std::vector<int> inherit;            // descriptors that ranks inherit
  bool results = false;                // ranks return bytes (GRADUS_RESULT_FD)
  std::function<void(const std::vector<pid_t>&)>
      on_start;  // called with the ranks' pids in each attempt; may be empty

  std::string log_dir;         // folder for logs and error files; "": none
  std::vector<int> redirects;  // per local rank, kStdout | kStderr: to files, not to the console; empty: none
  std::vector<int> tee;     // per local rank: to files (if there is a log_dir) and the console, with a prefix
  std::vector<bool> shown;  // per local rank: on the console; empty: all

  std::vector<int> signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};  // these end the job
  Milliseconds shutdown_timeout{3'000};                           // between SIGTERM and SIGKILL to the ranks
  Milliseconds monitor_interval{50};  // maximal time between two polls of the ranks
};

// How a rank of this machine ended.
struct RankExit {
  int rank = 0, local_rank = 0;
  pid_t pid = 0;
  int exit_code = -1;              // -1: ended by `signal`, or unknown
  int signal = 0;                  // the signal that killed the rank; 0: none
  bool ended_by_launcher = false;  // after the launcher had sent a signal to end the rank
  bool was_stopped = false;        // the process was stopped (SIGSTOP) when the job failed
  std::chrono::system_clock::time_point time;
  std::string message;                  // of the rank's exception, from the error file; "": none
  std::string traceback;                // of the rank's exception, from the error file
  std::optional<int> rank_at_fault;     // of its exception, if that is a DistributedError
  std::string error_file;               // "" when it is not kept
  std::vector<std::string> last_lines;  // of its stderr

  bool ok() const { return exit_code == 0; }
  // Returns "rank 2 was killed by signal 9 (SIGKILL)", "rank 1 failed: ShapeError: [matmul] ..." or "rank 3
  // exited with code 1".
  std::string describe() const;
};

struct Outcome {
  bool ok = false;
  int signal = 0;                    // the signal that ended the launcher's job; 0: none
  Failure failure;                   // the first one, unless ok
  std::vector<RankExit> exits;       // of this machine's ranks in the last attempt, by rank
  std::vector<std::string> results;  // if ok: of all ranks of all machines; empty without options.results
  std::string log_dir;               // the folder, "": none
  std::string lost_output;           // of ranks, that could not be written; "": none
  int attempts = 1;                  // number of attempts that have begun
};

// Runs the job. Returns when all ranks have ended and no process of the job is left. Meanwhile replaces this
// process's handlers of options.signals and SIGCHLD; one call at a time. A failure of ranks, or a signal, is
// an Outcome and no error.
// Errors: ValueError, ConnectionError or TimeoutError if the job cannot begin or a launcher of another node
// is gone; FileError for log_dir.
Outcome supervise(const SupervisorOptions& options);

// Returns the report of a failed job, in several lines: the first failure with all that is known about it,
// and how the other ranks ended. Returns "" for a job that did not fail. `op` is the name in messages.
std::string failure_report(const char* op, const Outcome& outcome);

// Returns "SIGKILL" for 9.
std::string signal_name(int signal);

}  // namespace gradus::dist::internal
