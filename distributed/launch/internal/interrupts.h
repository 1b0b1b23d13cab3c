// Interrupts: makes the signals that request the launcher's end (SIGINT, SIGTERM) readable from a file
// descriptor while the launcher runs a job.
#pragma once

#include <csignal>
#include <utility>
#include <vector>

namespace gradus::dist::internal {

// Catches the signals for its lifetime; the destructor restores the program's own handlers. A signal that is
// ignored (nohup) stays ignored. A process has at most one Interrupts at a time.
// Errors: ValueError if the system has no pipe left.
class Interrupts {
 public:
  explicit Interrupts(const std::vector<int>& signals);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Returns a descriptor for poll(): it is readable while next_signal() has a signal to return.
  int fd() const;
  // Removes and returns the number of the earliest signal that has arrived; 0 if there is none. Never blocks.
  // Signals beyond the capacity of a pipe (64 KiB) are lost.
  int next_signal();

 private:
  std::vector<std::pair<int, struct sigaction>> previous_actions_;
};

// Lets the Interrupts of this process report a signal that did not arrive. Does nothing without one.
void interrupt(int signal);

}  // namespace gradus::dist::internal
