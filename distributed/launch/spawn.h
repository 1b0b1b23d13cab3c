// spawn: starts ranks as torch.multiprocessing.spawn does, with typed errors, and without waiting if wanted.
//
//   void train(int rank, const std::string& name, double lr) { ...every rank runs this... }
//
//   int main() {
//     dist::spawn({.nprocs = 4}, train, "resnet", 0.1);
//   }
//
// As dist::launcher (launcher.h) it starts the program again for every rank, so main() runs in every rank up to
// this call, and the arguments are those that the first process computed. The ranks have joined a job: the
// function does not call init_process_group.
#pragma once

#include <sys/types.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/launch/launcher.h"

namespace gradus::dist {

struct SpawnOptions {
  int nprocs = 1;
  bool join = true;     // false: spawn returns at once, and SpawnContext::join waits
  bool daemon = false;  // true: the destructor of a SpawnContext ends the ranks; false: it waits for
                        // them, but ends them too while an exception unwinds
  std::string backend = "cpu:gloo,cuda:nccl";  // as in LauncherOptions
  Milliseconds timeout{600'000};               // as in LauncherOptions
};

// The first failure of a job that spawn started: rank() failed. Base of the two errors below.
class ProcessError : public LaunchError {
 public:
  template <class... Parts>
  ProcessError(int rank, pid_t pid, const Parts&... parts)
      : LaunchError("spawn", rank, parts...), pid_(pid) {}
  pid_t pid() const { return pid_; }  // of the rank's process; 0: unknown, or the ranks are threads

 private:
  pid_t pid_;
};
// The rank's function threw: "[spawn] rank 1 failed: ShapeError: [matmul] ...".
class ProcessRaisedError : public ProcessError {
 public:
  using ProcessError::ProcessError;
};
// The rank's process was killed by a signal, or exited: "[spawn] rank 1 was killed by signal 11 (SIGSEGV)".
class ProcessExitedError : public ProcessError {
 public:
  template <class... Parts>
  ProcessExitedError(int rank, pid_t pid, int exit_code, int signal, const Parts&... parts)
      : ProcessError(rank, pid, parts...), exit_code_(exit_code), signal_(signal) {}
  int exit_code() const { return exit_code_; }  // -1: killed by a signal, or unknown
  int signal() const { return signal_; }        // 0: none
  std::string signal_name() const;              // "SIGSEGV"; "" without a signal

 private:
  int exit_code_, signal_;
};

// The ranks of one call of spawn.
class SpawnContext {
 public:
  struct State;
  explicit SpawnContext(std::unique_ptr<State> state);
  SpawnContext(SpawnContext&&) noexcept;
  SpawnContext& operator=(SpawnContext&&) noexcept;
  ~SpawnContext();

  // Waits until all ranks have ended, at most for `timeout`. Returns whether they have.
  // Errors: ProcessRaisedError and ProcessExitedError, in every call; LaunchError if a signal to this process
  // ended the job; those of launcher for the options.
  bool join(std::optional<Milliseconds> timeout = {});
  // Returns the processes of the ranks, in rank order; empty if the ranks are threads, or started nothing.
  std::vector<pid_t> pids() const;

 private:
  std::unique_ptr<State> state_;
};

namespace internal {
SpawnContext spawn_bytes(const SpawnOptions& options, std::string arguments,
                         std::function<void(std::string_view)> f);
}

// Calls f(rank, args...) on every rank. After the first failure the other ranks are ended (SIGTERM, then
// SIGKILL). One call of spawn or launcher runs at a time. Args as for launcher.
// Errors: with join, those of SpawnContext::join.
template <class F, class... Args>
  requires std::invocable<F&, int, internal::Argument<Args>...>
SpawnContext spawn(const SpawnOptions& options, F f, const Args&... args) {
  return internal::spawn_bytes(
      options, internal::arguments_to_wire(args...), [f = std::move(f)](std::string_view bytes) mutable {
        auto with_rank = [&](auto&&... values) { f(get_rank(), std::forward<decltype(values)>(values)...); };
        internal::call_with_arguments<Args...>(with_rank, bytes);
      });
}

}  // namespace gradus::dist
