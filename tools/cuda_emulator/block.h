// One thread block of an emulated kernel launch. Its threads run as fibers on one thread of the host, in a
// pseudo-random order, and switch at barriers and warp-wide operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/tools/cuda_emulator/fault.h"
#include "gradus/tools/cuda_emulator/fiber.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"
#include "gradus/tools/cuda_emulator/shadow.h"
#include "gradus/tools/cuda_emulator/source_location.h"

namespace gradus::cuda::emulated {

inline constexpr int kLanes = 32;
inline constexpr int kMaxThreads = 1024;
// Maximal shared memory per block of an H100.
inline constexpr int64_t kMaxSharedBytes = 232448;

// A kernel with its arguments.
struct Launch {
  const char* op = "";           // the op that launches it, for reports
  const void* kernel = nullptr;  // its address, for its name
  void (*call)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  size_t argument_bytes = 0;
  int64_t blocks = 1;
  int threads = 1;
  int64_t shared_bytes = 0;
  int device = 0;
};

// Warp-wide operations: __syncwarp, shuffles and __ballot_sync.
enum class Meeting : uint8_t { kWait, kShuffle, kBallot };

class Block {
 public:
  Block();

  // The block whose threads run on the calling thread of the host; null outside of kernels.
  static Block* running() { return running_; }

  // Runs all threads of block `index`. `blocks` has the indices in the order in which the blocks of the
  // launch run, `number` is the position of `index` there, and `stamp` identifies the launch. Returns the
  // first fault, which ends the block.
  std::optional<Fault> run(const Launch& launch, uint32_t stamp, uint32_t index, uint32_t number,
                           const std::vector<uint32_t>& blocks, Order* order);

  // Called by the running thread.
  int thread_index() const { return self_->index; }
  uint32_t index() const { return index_; }
  const Launch& launch() const { return *launch_; }
  void* shared_memory(size_t bytes, const SourceLocation& location);
  void wait_for_block(const SourceLocation& location);
  // Waits until all lanes of `mask` call meet(). Returns the value of lane `from`, or, for kBallot, a bit for
  // each lane whose value is not 0.
  uint64_t meet(Meeting meeting, uint32_t mask, uint64_t value, int from, const SourceLocation& location);
  // Checks an access and records it in the shadow memory (shadow.h). Vectors must be aligned to their size.
  void access(const void* address, size_t bytes, Access access, bool is_vector,
              const SourceLocation& location);
  // Stops the block if the address is in shared memory.
  void need_global(const void* address, const SourceLocation& location);

 private:
  // kMeets: waits in meet(); kGone: has returned from the kernel.
  enum class State : uint8_t { kNew, kRuns, kReady, kAtBarrier, kMeets, kGone };
  struct Thread {
    int index = 0;
    State state = State::kNew;
    uint32_t now = 0;  // Note [Order between threads]
    Fiber* fiber = nullptr;
    SourceLocation location;  // where it waits
    Meeting meeting = Meeting::kWait;
    uint32_t mask = 0;
    uint64_t value = 0, result = 0;
    int from = 0;
    std::array<uint32_t, kLanes> lanes_seen{};  // Clock::lanes_seen

    int warp() const { return index / kLanes; }
    int lane() const { return index % kLanes; }
  };

  static void run_threads();  // on a fiber
  void enter(Fiber* fiber, Thread* thread);
  void leave(State state);
  Fiber* idle_fiber();
  bool pass_barrier();
  bool all_meet(uint32_t mask, uint32_t warp) const;
  void complete(uint32_t mask, uint32_t warp);
  void check_shadow(Shadow* shadow, size_t offset, uint32_t stamp, size_t bytes, Access access,
                    const SourceLocation& location, const void* address);
  bool is_own_or_constant(const void* address, size_t bytes, Access access) const;
  Clock clock() const {
    return {number_, static_cast<uint32_t>(self_->index), now_of(*self_), barrier_time_,
            self_->lanes_seen.data()};
  }
  uint32_t now_of(const Thread& t) const { return t.now < barrier_time_ ? barrier_time_ : t.now; }
  bool is_shared(const void* p) const {
    return static_cast<size_t>(static_cast<const char*>(p) - shared_) < static_cast<size_t>(kMaxSharedBytes);
  }

  // Returns a fault with its report: what a thread did, and where.
  Fault describe(FaultKind kind, const std::string& what, const SourceLocation& location,
                 const Thread& thread, const std::string& memory = "") const;
  // Sets fault_ and ends the block. Called on the fiber of a thread, which does not resume.
  [[noreturn]] void stop(FaultKind kind, const std::string& what, const SourceLocation& location,
                         const std::string& memory = "");
  std::string name_of_thread(uint32_t id) const;
  std::string name_of_memory(const void* address) const;

  static thread_local Block* running_;

  const Launch* launch_ = nullptr;
  DeviceMemory* memory_ = nullptr;
  const std::vector<uint32_t>* blocks_ = nullptr;
  Order* order_ = nullptr;
  uint32_t index_ = 0, number_ = 0, launch_stamp_ = 0, shared_stamp_ = 0;
  std::vector<Thread> threads_;
  std::vector<uint32_t> start_order_;
  size_t next_ = 0;  // position in start_order_ of the next thread to start
  int gone_ = 0;     // number of threads that have returned
  std::vector<Thread*> ready_, at_barrier_;
  // Masks of the lanes of each warp that wait in meet(), and that have returned.
  std::array<uint32_t, kMaxThreads / kLanes> meeting_{}, left_{};
  uint32_t time_ = 1, barrier_time_ = 0;
  Thread* self_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::optional<Fault> fault_;
  char* shared_;  // kMaxSharedBytes
  Byte* shared_state_;
  Shadow shared_shadow_{kMaxSharedBytes};
};

}  // namespace gradus::cuda::emulated
