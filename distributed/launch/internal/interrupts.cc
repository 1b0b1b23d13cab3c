// Interrupts as a self-pipe: the handler, which may call only async-signal-safe functions, writes the
// signal's number as one byte to a non-blocking pipe of the process. A full pipe loses signals.
#include "gradus/distributed/launch/internal/interrupts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

int pipe_ends[2] = {-1, -1};  // {read, write}; never closed: a late handler may still write

void on_signal(int signal) {
  const int error = errno;
  const unsigned char number = static_cast<unsigned char>(signal);
  (void)!write(pipe_ends[1], &number, 1);
  errno = error;
}

}  // namespace

Interrupts::Interrupts(const std::vector<int>& signals) {
  if (pipe_ends[0] < 0 && pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) < 0)
    throw ValueError("launcher", "cannot make a pipe: ", std::strerror(errno));
  while (next_signal()) {  // discards signals of an earlier Interrupts
  }
  for (const int signal : signals) {
    struct sigaction action, before;
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    std::memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
    previous_actions_.emplace_back(signal, before);
  }
}

Interrupts::~Interrupts() {
  for (const auto& [signal, before] : previous_actions_) sigaction(signal, &before, nullptr);
}

void interrupt(int signal) {
  if (pipe_ends[1] >= 0) on_signal(signal);
}

int Interrupts::fd() const { return pipe_ends[0]; }

int Interrupts::next_signal() {
  unsigned char number = 0;
  return read(pipe_ends[0], &number, 1) == 1 ? number : 0;
}

}  // namespace gradus::dist::internal
