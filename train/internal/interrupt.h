// Interrupt: turns Ctrl-C and SIGTERM into a question that the program asks between two batches.
#pragma once

namespace gradus::training::internal {

// While one lives, the first SIGINT or SIGTERM only makes requested() true; a second one ends the
// program at once.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
};

// The exit status of a program that a signal asked to stop.
inline constexpr int kInterruptedStatus = 130;

}  // namespace gradus::training::internal
