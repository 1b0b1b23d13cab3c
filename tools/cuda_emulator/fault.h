// Faults that the emulator's checker detects in kernels, copies and library calls. A fault ends the program,
// or is collected by a test.
#pragma once

#include <string>
#include <vector>

namespace gradus::cuda::emulated {

enum class FaultKind {
  kRace,          // two threads, one location, no order between them, one of them writes
  kUnwritten,     // a read of uninitialized memory
  kOutOfBounds,   // outside of allocations, of shared memory, or in freed memory
  kMisaligned,    // a vector at an address that is no multiple of its size
  kHostMemory,    // a kernel accesses host memory that is not pinned
  kBarrier,       // not all threads of a block arrive, or they arrive at different barriers
  kMask,          // not all lanes of a mask arrive, or the mask lacks the calling lane
  kSharedMemory,  // more shared memory than the launch has, or a vector store to shared memory
  kCollective,    // calls of NCCL that do not match, deadlock, or misuse a communicator
  kArgument,      // an argument with which a CUDA or library function really crashes or loses the device
};

struct Fault {
  FaultKind kind;
  std::string text;  // the report: description, kernel, source location, thread, memory, seed
};

// Collects all faults during its lifetime; each ends its launch. Without a scope, a fault is printed and ends
// the program. For tests; only one scope exists at a time.
class FaultScope {
 public:
  FaultScope();
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

  std::vector<Fault> take();
};

// Returns the last lines of a report about host code: the op that the calling thread executes, and the seed.
std::string host_op_and_seed();

// Adds a fault to the scope, or prints it and aborts.
void deliver(Fault fault);

}  // namespace gradus::cuda::emulated
