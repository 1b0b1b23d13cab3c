// Starts a program's function on several ranks: on this machine, or as this machine's part of a job
// on several machines.
//
//   int main() {
//     return dist::launcher({.nproc_per_node = 4}, [] { ...every rank runs this... });
//   }
//
// The launcher starts the program again, once per rank, with the same arguments: main() runs in every rank,
// too, and must make the same calls of launcher and launch in the same order. In a rank, earlier calls return
// what they returned in the launching process, and the same call runs the function and then ends the process.
// Under gradus-run, torchrun, Slurm or MPI (RANK and WORLD_SIZE), nothing is started: the function runs as
// that rank. The first failure ends all ranks, and is shown with its rank, exception and last lines. No
// process is left.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/wire.h"

namespace gradus::dist {

struct LauncherOptions {
  int nproc_per_node = 0;                 // ranks on this machine; 0: one per GPU, or one rank without GPUs
  int n_gpus = 0;                         // MegEngine's name for nproc_per_node
  int nnodes = 1;                         // number of machines
  int node_rank = 0;                      // number of this machine, from 0
  int world_size = 0;                     // MegEngine's way: ranks of all machines
  int rank_start = 0;                     // MegEngine's way: first rank of this machine
  std::string master_addr = "127.0.0.1";  // address of the machine with node_rank 0
  std::string master_ip = {};             // MegEngine's name for master_addr
  int master_port = 0;                    // 0: any free one; required with several machines
  int port = 0;                           // MegEngine's name for master_port
  std::string backend =
      "cpu:gloo,cuda:nccl";  // as in InitOptions; or "local": ranks are threads of this process
  int max_restarts = 0;      // how often all ranks are started again after a failure
  int threads_per_rank = 0;  // 0: usable cores / ranks on this machine
  std::string log_dir = {};  // the ranks' output, one folder per attempt and rank; "": none
  // The default timeout of collectives. Ranks may also run for this long after another rank has returned.
  Milliseconds timeout{600'000};
  Milliseconds shutdown_timeout{3'000};  // between SIGTERM and SIGKILL to the ranks
};

// The error of a failed job, with its first failure.
class LaunchError : public DistributedError {
 public:
  using DistributedError::DistributedError;
};

// In the launching process: returns 0 if the function returned on every rank; otherwise prints the first
// failure and returns a non-zero exit status: 1, or 128 + the signal that ended the job. In a rank that this
// launcher has started: does not return. In a rank that another program (torchrun) has started: returns 0, or
// throws the function's exception.
// Errors: ValueError for options that are out of range or contradict each other; ConnectionError for a taken
// port or an unreachable master; StateError if a call is running in this process, such as in a function that
// ranks run.
int launcher(const LauncherOptions& options, const std::function<void()>& body);

namespace internal {
// As launcher, for a function that takes the `arguments` of the launching process.
int launch_status(const LauncherOptions& options, const std::string& arguments,
                  const std::function<void(std::string_view)>& f);
// As launcher, for a function that returns an exit status. Returns the largest of the ranks' statuses if all
// functions returned; under another program's launcher, this rank's.
int launch_program(const LauncherOptions& options, const std::function<int()>& body);
// Returns the functions' results, in rank order. Errors: as for launch.
std::vector<std::string> launch_bytes(const LauncherOptions& options,
                                      const std::function<std::string()>& body);
}  // namespace internal

// With the default options: one rank per GPU, or one rank without GPUs.
template <std::invocable F> int launcher(F body) { return launcher(LauncherOptions(), body); }

namespace internal {
// The type of an argument on its way to a rank: a string for what is a view of one.
template <class T>
using Argument = std::conditional_t<std::is_convertible_v<const T&, std::string_view>, std::string, T>;

template <class... Args> std::string arguments_to_wire(const Args&... args) {
  WireWriter writer;
  (writer.put(static_cast<const Argument<Args>&>(args)), ...);
  return writer.release();
}
template <class... Args, class F> void call_with_arguments(F& f, std::string_view bytes) {
  std::apply(f, from_wire<std::tuple<Argument<Args>...>>(bytes));
}
}  // namespace internal

// Calls body(args...) on every rank, with the values that the arguments have in the launching process. main() runs
// in the ranks too, but the arguments that it computes there are not used: a random seed or the time are the
// same on all ranks. The types of Args are those of launch's results, and string literals. With several machines,
// ranks get the arguments of their own machine's launcher; a rank of another program's launcher its own.
template <class F, class... Args>
  requires(sizeof...(Args) > 0 && std::invocable<F&, internal::Argument<Args>...>)
int launcher(const LauncherOptions& options, F body, const Args&... args) {
  return internal::launch_status(options, internal::arguments_to_wire(args...), [&](std::string_view bytes) {
    internal::call_with_arguments<Args...>(body, bytes);
  });
}

// Returns what the function returned on every rank, in rank order, including ranks of other machines. R may
// be any type of gradus/distributed/base/wire.h: numbers, enums, strings, Tensors, vectors, maps and pairs of these.
// Errors: as for launcher; LaunchError instead of a non-zero exit status.
template <class R> std::vector<R> launch(const LauncherOptions& options, const std::function<R()>& body) {
  std::vector<R> results;
  for (const std::string& bytes : internal::launch_bytes(options, [&] { return to_wire(body()); }))
    results.push_back(from_wire<R>(bytes));
  return results;
}

}  // namespace gradus::dist
