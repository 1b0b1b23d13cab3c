// Starts a program's function on several ranks: on this machine, or as this machine's part of a job
// on several machines.
//
//   int main() {
//     return dist::launcher({.nproc_per_node = 4}, [] { ...every rank runs this... });
//   }
//
// The launcher starts the program again, once per rank, with the same arguments. In a rank, the same call
// runs the function and then ends the process. Under gradus-run, torchrun, Slurm or MPI (RANK and
// WORLD_SIZE), nothing is started: the function runs as that rank. The first failure ends all ranks, and is
// shown with its rank, exception and last lines. No process is left.
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
  int nproc_per_node = 0;  // ranks on this machine; 0: one per GPU, or one rank without GPUs
  int n_gpus = 0;          // MegEngine's name for nproc_per_node
  int nnodes = 1;
  int node_rank = 0;
  int world_size = 0;  // MegEngine's way: ranks of all machines
  int rank_start = 0;  // MegEngine's way: first rank of this machine
  std::string master_addr = "127.0.0.1";
  std::string master_ip = {};    // MegEngine's name for master_addr
  int master_port = 0;           // 0: any free one, with one machine
  int port = 0;                  // MegEngine's name for master_port
  std::string backend = "gloo";  // "local": ranks are threads of this process
  int max_restarts = 0;          // how often all ranks are started again after a failure
  int threads_per_rank = 0;      // 0: usable cores / ranks on this machine
  std::string log_dir = {};      // the ranks' output, one folder per attempt and rank; "": none
  // The timeout of collectives, unless they say otherwise. Ranks may also go on for this long after another
  // rank has returned.
  Milliseconds timeout{600'000};
  Milliseconds shutdown_timeout{3'000};  // between asking ranks to end and killing them
};

// The error of a failed job, with its first failure.
class LaunchError : public DistributedError {
 public:
  using DistributedError::DistributedError;
};

// Returns 0 if every rank's function returned. Otherwise shows what failed first, and returns a non-zero exit
// status. In a rank it does not return, except under another program's launcher. There it returns 0, or
// throws what the function threw.
// Errors: ValueError for options that do not fit each other; ConnectionError for a taken port or
// an unreachable master.
int launcher(const LauncherOptions& options, const std::function<void()>& body);

namespace internal {
// As launcher, for a function that returns an exit status. Returns the largest of the ranks' statuses if all
// functions returned; under another program's launcher, this rank's.
int launch_program(const LauncherOptions& options, const std::function<int()>& body);
std::vector<std::string> launch_bytes(const LauncherOptions& options,
                                      const std::function<std::string()>& body);
}  // namespace internal

// Returns what the function returned on every rank, in rank order, including ranks of other machines. R may
// be numbers, enums, strings, Tensors, and vectors and pairs of these (gradus/distributed/base/wire.h).
// Errors: as for launcher; LaunchError instead of a non-zero exit status.
template <class R> std::vector<R> launch(const LauncherOptions& options, const std::function<R()>& body) {
  std::vector<R> results;
  for (const std::string& bytes : internal::launch_bytes(options, [&] { return to_wire(body()); }))
    results.push_back(from_wire<R>(bytes));
  return results;
}

}  // namespace gradus::dist
