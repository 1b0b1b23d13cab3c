// Fibers: stacks between which one thread of the host switches. Each waiting thread of an emulated kernel
// keeps one.
#pragma once

#include <cstddef>

namespace gradus::cuda::emulated {

// A stack on which `entry` runs. Only one thread of the host may use a fiber at a time.
class Fiber {
 public:
  static constexpr size_t kStackBytes = size_t(64) << 10;

  // `entry` never returns: it calls leave() when it is done, and continues when the fiber is entered again.
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it calls leave().
  void enter();
  // Called on the fiber: returns to the caller of enter().
  void leave();
  // Called on the fiber, at the beginning of `entry`. Completes the switch for AddressSanitizer.
  void begin();
  // Abandons the current run: the next enter() begins with `entry`. Objects on the stack are not destroyed;
  // those of kernels need no destructor.
  void restart();

  bool holds(const void* p) const { return p >= stack_ && p < stack_ + kStackBytes; }

 private:
  void (*entry_)();
  char* stack_;
  void* here_ = nullptr;    // the fiber's stack pointer while it does not run
  void* caller_ = nullptr;  // the stack pointer of the caller of enter() while the fiber runs
  // For AddressSanitizer, which must know the current stack.
  void* fake_here_ = nullptr;
  void* fake_caller_ = nullptr;
  const void* caller_bottom_ = nullptr;
  size_t caller_bytes_ = 0;
};

}  // namespace gradus::cuda::emulated
