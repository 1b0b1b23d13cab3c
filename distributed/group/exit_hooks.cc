// install_exit_hooks: reports to the other ranks how this process ends. An end by a signal or _exit runs no
// hooks; the store's server detects it by the broken connection.
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <mutex>

#include "gradus/distributed/base/crash_handler.h"
#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/group/internal/join_job.h"

namespace gradus::dist::internal {
namespace {

pid_t rank_process = 0;  // the process that installed the hooks; its forked children are no ranks
std::terminate_handler previous_terminate = nullptr;

// Returns the process's World; null without one, or in a forked child.
Ref<World> own_world() { return getpid() == rank_process ? World::process_world() : nullptr; }

void report_end(World& world, const Failure& failure) {
  world.membership->report(failure);
  leave_job(world);
}

void at_exit(int status, void*) {
  const Ref<World> world = own_world();
  if (!world) return;
  try {
    if (status == 0) {
      world->finish_calls();
      leave_job(*world);
    } else {
      report_end(*world, {Failure::Kind::kFailed, world->rank,
                          concat("rank ", world->rank, " exited with code ", status)});
    }
  } catch (...) {  // the broken connection shows the end
  }
}

// The handler of std::terminate, with or without a current exception.
[[noreturn]] void at_terminate() {
  if (const Ref<World> world = own_world()) {
    try {
      const std::exception_ptr error = std::current_exception();
      if (error) write_error_file(error, native_backtrace());
      report_end(*world, error ? failure_of(world->rank, error)
                               : Failure{Failure::Kind::kFailed, world->rank,
                                         concat("rank ", world->rank, " failed: std::terminate was called")});
    } catch (...) {
    }
  }
  if (previous_terminate) previous_terminate();
  std::abort();
}

}  // namespace

void install_exit_hooks() {
  static std::once_flag once;
  std::call_once(once, [] {
    on_exit(at_exit, nullptr);
    previous_terminate = std::set_terminate(at_terminate);
  });
  rank_process = getpid();
}

}  // namespace gradus::dist::internal
