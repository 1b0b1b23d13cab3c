// Stop: the signal handlers set an atomic flag. Each step starts an asynchronous all-reduce (maximum) of the
// flags, and waits for that of the step before, so that all ranks stop in the same step.
#include "gradus/train/internal/stop.h"

#include <atomic>
#include <csignal>
#include <exception>

#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::training::internal {
namespace {

std::atomic<bool> g_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void set_handlers(void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

Stop::Stop() {
  g_requested = false;
  // SA_RESETHAND: the second signal has its default action.
  set_handlers([](int) { g_requested = true; }, SA_RESTART | static_cast<int>(SA_RESETHAND));
}

Stop::~Stop() {
  try {
    if (all_reduce_) all_reduce_->wait();
  } catch (const std::exception&) {
    // The job has failed, and another error reports the failure.
  }
  set_handlers(SIG_DFL, 0);
}

bool Stop::should_stop() {
  if (dist::get_world_size() == 1) return g_requested;
  bool stop = false;
  if (all_reduce_) {
    all_reduce_->wait();
    stop = requested_.item<int32_t>() != 0;
  }
  requested_ = full({1}, bool(g_requested), {.dtype = DType::kI32});
  all_reduce_ = dist::all_reduce(requested_, {.op = dist::ReduceOp::kMax, .async_op = true});
  return stop;
}

}  // namespace gradus::training::internal
