// QuietSignals: turns a failed write into an error of the system call, where the system would end the
// process by a signal.
#pragma once

#include <signal.h>

#include <cerrno>
#include <ctime>
#include <initializer_list>

namespace gradus::internal {

// While an object lives, writes of this thread fail with an error instead of a signal: beyond `ulimit -f`
// with EFBIG (SIGXFSZ), and to a pipe or socket without a reader with EPIPE (SIGPIPE). The program's handlers
// stay as they are.
class QuietSignals {
 public:
  explicit QuietSignals(std::initializer_list<int> signals = {SIGXFSZ}) {
    sigset_t blocked, pending;
    sigemptyset(&blocked);
    sigemptyset(&ours_);
    sigpending(&pending);
    for (const int s : signals) {
      sigaddset(&blocked, s);
      if (sigismember(&pending, s) == 0) sigaddset(&ours_, s);  // a signal already pending is the program's
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
