// Interrupts: signals that ask the launcher to end, as something that can be polled, while it has a job.
#pragma once

#include <csignal>
#include <utility>
#include <vector>

namespace gradus::dist::internal {

// Catches the signals for its lifetime; the program's own handlers are back afterward. A signal that is
// ignored (nohup) stays so. One at a time in a process.
class Interrupts {
 public:
  explicit Interrupts(const std::vector<int>& signals);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Becomes readable when one comes.
  int fd() const;
  // The next one that came; 0 when none did.
  int take();

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace gradus::dist::internal
