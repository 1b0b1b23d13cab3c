// Implementation of grid.h.
#include "gradus/tools/cuda_emulator/grid.h"

#include <atomic>
#include <vector>

#include "gradus/tools/cuda_emulator/counters.h"

namespace gradus::cuda::emulated {

cudaError_t check_shape(int64_t blocks, int64_t threads, int64_t shared_bytes) {
  const bool fits = blocks >= 1 && blocks <= 0x7fffffff && threads >= 1 && threads <= kMaxThreads &&
                    shared_bytes >= 0 && shared_bytes <= kMaxSharedBytes;
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

void run_grid(const Launch& launch) {
  static std::atomic<uint32_t> launches{0};
  static Block* const block = new Block;  // one is enough, because callers hold the runtime's lock
  const uint32_t stamp = ++launches;
  Order order(stamp);
  std::vector<uint32_t> blocks;
  order.shuffle(&blocks, static_cast<uint32_t>(launch.blocks));
  if (Counters* counters = Counters::active())
    counters->launched(launch.kernel, launch.threads, launch.shared_bytes);
  for (uint32_t number = 0; number < blocks.size(); ++number) {
    std::optional<Fault> fault = block->run(launch, stamp, blocks[number], number, blocks, &order);
    if (Counters* counters = Counters::active()) counters->end_block();
    if (fault) return deliver(*std::move(fault));
  }
}

}  // namespace gradus::cuda::emulated
