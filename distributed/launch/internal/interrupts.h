// Interrupts: makes the signals that ask the launcher to end pollable while it has a job.
#pragma once

#include <csignal>
#include <utility>
#include <vector>

namespace gradus::dist::internal {

// Catches the signals for its lifetime, and then restores the program's own handlers. A signal that is
// ignored (nohup) stays ignored. A process has at most one Interrupts at a time.
class Interrupts {
 public:
  explicit Interrupts(const std::vector<int>& signals);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Returns a descriptor that becomes readable when a signal comes.
  int fd() const;
  // Returns the next signal that came; 0 if there is none.
  int next_signal();

 private:
  std::vector<std::pair<int, struct sigaction>> previous_actions_;
};

}  // namespace gradus::dist::internal
