// Fibers: stacks that a thread of the host switches between. A thread of a kernel that waits keeps its stack.
#pragma once

#include <cstddef>

namespace gradus::cuda::emulated {

// A stack of its own, on which `entry` runs. enter() and leave() belong to one thread of the host at a time.
class Fiber {
 public:
  static constexpr size_t kStackBytes = size_t(64) << 10;

  // `entry` never returns: it calls leave() when it has nothing left to do, and goes on when entered again.
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it leaves.
  void enter();
  // Called on the fiber: goes back to where enter() was called.
  void leave();
  // Called on the fiber, at the beginning of `entry`.
  void begin();
  // Forgets what the fiber was doing. The next enter() begins with `entry`. Objects on its stack are not
  // destroyed: those of kernels need no destructor.
  void restart();

  bool holds(const void* p) const { return p >= stack_ && p < stack_ + kStackBytes; }

 private:
  void (*entry_)();
  char* stack_;
  void* here_ = nullptr;    // the fiber's stack pointer while it does not run
  void* caller_ = nullptr;  // the other side's while it does
  // AddressSanitizer's: it must know which stack is in use.
  void* fake_here_ = nullptr;
  void* fake_caller_ = nullptr;
  const void* caller_bottom_ = nullptr;
  size_t caller_bytes_ = 0;
};

}  // namespace gradus::cuda::emulated
