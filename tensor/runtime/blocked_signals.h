// BlockedSignals: an RAII guard that blocks SIGXFSZ or SIGPIPE on this thread, so that a failed write is an error
// of the system call instead of a signal that ends the process.
#pragma once

#include <signal.h>

#include <cerrno>
#include <ctime>
#include <initializer_list>

namespace gradus::internal {

// For the lifetime of the object, writes of this thread beyond `ulimit -f` fail with EFBIG (with SIGXFSZ in
// `signals`), and writes to a pipe or socket without a reader fail with EPIPE (with SIGPIPE). The destructor
// discards blocked signals that have arrived meanwhile, and restores the thread's signal mask; a signal that was
// pending before stays pending. The program's signal handlers are not changed. The thread that created the object
// must destroy it; errno is preserved.
class BlockedSignals {
 public:
  explicit BlockedSignals(std::initializer_list<int> signals = {SIGXFSZ}) {
    sigset_t blocked, pending;
    sigemptyset(&blocked);
    sigemptyset(&ours_);
    sigpending(&pending);
    for (const int s : signals) {
      sigaddset(&blocked, s);
      if (sigismember(&pending, s) == 0) sigaddset(&ours_, s);  // not pending before
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() {
    const int error = errno;
    const timespec now{};
    while (sigtimedwait(&ours_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_, ours_;  // the thread's signal mask before; the signals to discard
};

}  // namespace gradus::internal
