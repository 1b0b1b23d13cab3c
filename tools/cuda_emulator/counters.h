// Counts the memory traffic of emulated kernels by source line: sectors (32 bytes) of global memory, and
// passes over the banks of shared memory. Also counts launches of kernels.
//
//   CounterScope counting;
//   add(...);                                   // kernels
//   for (const Traffic& t : counting.take()) ...
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gradus/tools/cuda_emulator/shadow.h"
#include "gradus/tools/cuda_emulator/source_location.h"

namespace gradus::cuda::emulated {

inline constexpr uint64_t kSectorBytes = 32;
inline constexpr int kBanks = 32;

struct Traffic {
  SourceLocation location;
  bool shared = false, write = false;
  uint64_t requests = 0;  // accesses of whole warps
  uint64_t bytes = 0;     // sum over threads
  uint64_t sectors = 0;   // of global memory, which is moved in units of 32 bytes
  uint64_t passes = 0;    // over banks of shared memory
  // The passes without bank conflicts: 1 for each request, 2 and 4 for vectors of 8 and 16 bytes.
  uint64_t least_passes = 0;
};

// A kernel, the number of its launches, and the maxima over them of threads per block and shared memory.
struct Launched {
  std::string kernel;
  int64_t launches = 0;
  int64_t threads = 0;
  int64_t shared_bytes = 0;
};

class Counters {
 public:
  // The counters of the current CounterScope; null without one.
  static Counters* active() { return active_; }

  void count(const SourceLocation& location, int thread, uintptr_t address, size_t bytes, Access access,
             bool shared);
  void launched(const void* kernel, int64_t threads, int64_t shared_bytes);
  // Called at the end of a block: adds its requests to the totals.
  void end_block();
  std::vector<Traffic> take();
  std::vector<Launched> take_launches();

 private:
  friend class CounterScope;

  // A request: the accesses of the lanes of a warp by one execution of an instruction.
  struct LaneAccess {
    uint32_t lane, bytes;
    uintptr_t address;
  };
  using Request = std::vector<LaneAccess>;
  struct Site {
    SourceLocation location;
    bool shared = false, write = false;
    std::vector<uint32_t> turns;    // accesses of each thread of the block so far
    std::vector<Request> requests;  // by turn and warp
    Traffic total;
  };
  struct Less {
    bool operator()(const SourceLocation& a, const SourceLocation& b) const {
      return a.code != b.code ? a.code < b.code : a.line != b.line ? a.line < b.line : a.file < b.file;
    }
  };

  uint64_t sectors_of(const Request& request);
  void count_passes(const Request& request, Traffic* total);

  static Counters* active_;
  std::map<SourceLocation, Site, Less> sites_[4];  // global and shared, reads and writes
  std::map<const void*, Launched> launched_;
  std::vector<uintptr_t> scratch_;  // sectors or words of a request
};

// Counts while it lives. One at a time.
class CounterScope {
 public:
  CounterScope();
  ~CounterScope();
  CounterScope(const CounterScope&) = delete;
  CounterScope& operator=(const CounterScope&) = delete;

  // Returns the counts since the beginning, or since the last take().
  std::vector<Traffic> take();
  // The same for launches, sorted by kernel name.
  std::vector<Launched> take_launches();

 private:
  std::unique_ptr<Counters> counters_;
};

}  // namespace gradus::cuda::emulated
