// One call of launcher, launch or spawn, for their implementations.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/launch/launcher.h"

namespace gradus::dist::internal {

// The outcome of a call. The ranks of later calls receive it, because their processes run main() from its
// beginning and need a return value for this call.
struct Ended {
  int status = 0;                           // exit status: 0, 1, or 128 + the signal that ended the job
  int rank = -1;                            // the rank that failed first; -1: none, or unknown
  std::string text;                         // the first failure; "" if status is 0
  bool threw = false;                       // whether that rank failed by an exception, which `text` has
  int pid = 0, exit_code = -1, signal = 0;  // of that rank's process: 0, -1 and 0 if unknown
  std::vector<std::string> results;  // the function's results as bytes, by rank; unused for Results::kNone

  void put(WireWriter& w) const { w.put(status, rank, text, threw, pid, exit_code, signal, results); }
  void get(WireReader& r) { r.get(status, rank, text, threw, pid, exit_code, signal, results); }
};

// Whether this process runs functions of calls as a rank, so that a call starts nothing.
bool is_rank_process();

// Runs f(arguments) on every rank, with the `arguments` of the process that starts the ranks. on_start: as in
// SupervisorOptions, for ranks that are processes. As launcher, but returns the outcome.
Ended launch_with_arguments(const LauncherOptions& options, const std::string& arguments,
                            const std::function<void(std::string_view)>& f,
                            const std::function<void(const std::vector<pid_t>&)>& on_start = {});

}  // namespace gradus::dist::internal
