// QuietSignals: what a system call would tell its thread by a signal that ends the process is
// its error instead.
#pragma once

#include <signal.h>

#include <cerrno>
#include <ctime>
#include <initializer_list>

namespace gradus::internal {

// While it lives, a write of this thread beyond `ulimit -f` fails with EFBIG (SIGXFSZ), and one that nobody
// reads with EPIPE (SIGPIPE). The program's handlers stay as they are.
class QuietSignals {
 public:
  explicit QuietSignals(std::initializer_list<int> signals = {SIGXFSZ}) {
    sigset_t blocked, pending;
    sigemptyset(&blocked);
    sigemptyset(&ours_);
    sigpending(&pending);
    for (const int s : signals) {
      sigaddset(&blocked, s);
      if (sigismember(&pending, s) == 0) sigaddset(&ours_, s);  // an earlier one is the program's
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~QuietSignals() {
    const int error = errno;
    const timespec now{};
    while (sigtimedwait(&ours_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

 private:
  sigset_t before_, ours_;
};

}  // namespace gradus::internal
