// Starts a program's function on several ranks: on this machine, and as this machine's part of a
// job on several.
//
//   int main() {
//     return dist::launcher({.nproc_per_node = 4}, [] { ...every rank runs this... });
//   }
//
// The launcher starts the program again, once per rank, with the same arguments; in a rank the call runs the
// function and then ends the process. Under RANK and WORLD_SIZE (gradus-run, torchrun, Slurm, MPI) nothing is
// started: the function runs as that rank. The first failure ends all ranks, and is shown with its rank,
// exception and last lines; no process is left.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/wire.h"

namespace gradus::dist {

struct LauncherOptions {
  int nproc_per_node = 0;  // ranks on this machine; 0: one per GPU, one without GPUs. MegEngine: n_gpus
  int n_gpus = 0;          // the same
  int nnodes = 1;
  int node_rank = 0;
  int world_size = 0;  // MegEngine's way: ranks of all machines, and
  int rank_start = 0;  // the first one of this machine
  std::string master_addr = "127.0.0.1";
  std::string master_ip = {};            // the same
  int master_port = 0;                   // 0: any free one, with one machine
  int port = 0;                          // the same
  std::string backend = "gloo";          // "local": ranks are threads of this process
  int max_restarts = 0;                  // times that all ranks are started again after a failure
  int threads_per_rank = 0;              // 0: usable cores / ranks on this machine
  std::string log_dir = {};              // the ranks' output, one folder per attempt and rank; "": none
  Milliseconds timeout{600'000};         // of collectives, unless they say otherwise; and how long ranks
                                         // may go on when another has returned
  Milliseconds shutdown_timeout{3'000};  // between asking ranks to end and killing them
};

// A job that failed, with its first failure.
class LaunchError : public DistributedError {
 public:
  using DistributedError::DistributedError;
};

// Returns 0 when every rank's function returned, else a non-zero exit status, after showing what failed
// first. In a rank it does not return, except under a foreign launcher (there it returns 0 or throws what
// the function threw).
// Errors: ValueError for options that do not fit each other; ConnectionError for a taken port
// or unreachable master.
int launcher(const LauncherOptions& options, const std::function<void()>& body);

namespace internal {
std::vector<std::string> launch_bytes(const LauncherOptions& options,
                                      const std::function<std::string()>& body);
}

// Returns what the function returned on every rank, in rank order (ranks of other machines included). R:
// numbers, enums, strings, Tensors, vectors and pairs of these (gradus/distributed/base/wire.h).
// Errors: LaunchError instead of an exit status.
template <class R>
std::vector<R> launch(const LauncherOptions& options, const std::function<R()>& body) {
  std::vector<R> results;
  for (const std::string& bytes : internal::launch_bytes(options, [&] { return to_wire(body()); }))
    results.push_back(from_wire<R>(bytes));
  return results;
}

}  // namespace gradus::dist
