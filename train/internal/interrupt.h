// Interrupt: catches SIGINT and SIGTERM, for a program that polls between two batches.
#pragma once

namespace gradus::training::internal {

// While an Interrupt lives, the first SIGINT or SIGTERM sets requested(); the second one ends the program.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
};

// The exit status of an interrupted program.
inline constexpr int kInterruptedStatus = 130;

}  // namespace gradus::training::internal
