#include "gradus/train/internal/interrupt.h"

#include <atomic>
#include <csignal>

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

Interrupt::Interrupt() {
  g_requested = false;
  // SA_RESETHAND: the second signal has its default action.
  set_handlers([](int) { g_requested = true; }, SA_RESTART | static_cast<int>(SA_RESETHAND));
}

Interrupt::~Interrupt() { set_handlers(SIG_DFL, 0); }

bool Interrupt::requested() const { return g_requested; }

}  // namespace gradus::training::internal
