// What the checker finds.
#pragma once

#include <string>
#include <vector>

namespace gradus::cuda::emulated {

enum class FaultKind {
  kRace,          // two threads, one location, no order between them, one of them writes
  kUnwritten,     // a read of memory that nobody wrote
  kOutOfBounds,   // outside of allocations, of shared memory, or in freed memory
  kMisaligned,    // a vector at an address that is no multiple of its size
  kHostMemory,    // a kernel touches the host's memory
  kBarrier,       // threads of a block that do not all arrive, or not at one barrier
  kMask,          // lanes of a mask that do not all arrive, or the caller is not among them
  kSharedMemory,  // more shared memory than the launch gave, or a store that takes another kind of memory
  kArgument,      // of a library's function, which would crash or lose the device
};

struct Fault {
  FaultKind kind;
  std::string text;  // what, which kernel, where, which thread, which memory, which seed repeats it
};

// Collects the faults of all kernels that run while it lives; each ends its launch. Without one, a fault is
// printed and ends the program. For tests: one at a time.
class FaultScope {
 public:
  FaultScope();
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

  std::vector<Fault> take();
};

// The end of a report about the host: the op that the calling thread is in, and the seed.
std::string host_op_and_seed();

// Hands a fault to the scope, or prints it and aborts.
void deliver(Fault fault);

}  // namespace gradus::cuda::emulated
