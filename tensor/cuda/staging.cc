#include "gradus/tensor/cuda/staging.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <list>
#include <map>
#include <mutex>

#include "gradus/tensor/cuda/error.h"
#include "gradus/tensor/cuda/host_calls.h"

namespace gradus::cuda {
namespace {

#define GRADUS_CHECK(call, ...) check("copy", #call, call(__VA_ARGS__))

// Blocks have powers of two bytes. A larger copy is made in pieces.
constexpr int kLeastBits = 12, kMostBits = 26;
// Of one size there are so many bytes, but not fewer and not more blocks than these.
constexpr int64_t kBytesOfASize = int64_t(64) << 20;
constexpr size_t kLeastBlocks = 4, kMostBlocks = 64;

struct Block {
  void* p = nullptr;
  cudaEvent_t is_read = nullptr;  // the last copy from here is done
  bool is_held = true;            // a thread fills it, or nobody knows when it is read
};

std::atomic<int64_t> blocks_kept = 0;

// The blocks of one size on one device. The one that was used longest ago is the first. They live as long as
// the program does.
class Shelf {
 public:
  // Returns a block that no copy reads any more; null where there is no room for one.
  Block* take(int bits) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(blocks_, false, &Block::is_held);
    if (found == blocks_.end()) return add(bits);
    const cudaError_t status = cudaEventQuery(found->is_read);
    if (status != cudaErrorNotReady) check("copy", "cudaEventQuery", status);
    if (status == cudaErrorNotReady) {
      const auto most = std::clamp(static_cast<size_t>(kBytesOfASize >> bits), kLeastBlocks, kMostBlocks);
      if (blocks_.size() < most) return add(bits);
      GRADUS_CHECK(cudaEventSynchronize, found->is_read);
      count_calls(nullptr, {.waits = 1});
    }
    found->is_held = true;
    blocks_.splice(blocks_.end(), blocks_, found);
    return &*found;
  }
  void put_back(Block* block) {
    const std::lock_guard lock(mutex_);
    block->is_held = false;
  }

 private:
  Block* add(int bits) {
    Block block;
    GRADUS_CHECK(cudaEventCreateWithFlags, &block.is_read, cudaEventDisableTiming);
    const cudaError_t status = cudaMallocHost(&block.p, size_t(1) << bits);
    if (status != cudaSuccess) {
      (void)cudaEventDestroy(block.is_read);
      (void)cudaGetLastError();
      if (status != cudaErrorMemoryAllocation) check("copy", "cudaMallocHost", status);
      return nullptr;
    }
    count_calls(nullptr, {.allocations = 1});
    ++blocks_kept;
    return &blocks_.emplace_back(block);
  }

  std::mutex mutex_;
  std::list<Block> blocks_;
};

Shelf& shelf_of(int device, int bits) {
  static std::mutex mutex;
  static auto& shelves = *new std::map<int, std::array<Shelf, kMostBits + 1>>;
  const std::lock_guard lock(mutex);
  return shelves[device][static_cast<size_t>(bits)];
}

}  // namespace

void copy_staged(void* to, int device, const void* from, int64_t bytes, cudaStream_t stream) {
  for (int64_t at = 0, piece; at < bytes; at += piece) {
    piece = std::min(bytes - at, int64_t(1) << kMostBits);
    const auto size = static_cast<size_t>(piece);
    const int bits = std::max(kLeastBits, static_cast<int>(std::bit_width(size - 1)));
    char* const target = static_cast<char*>(to) + at;
    const char* const source = static_cast<const char*>(from) + at;
    Shelf& shelf = shelf_of(device, bits);
    Block* const block = shelf.take(bits);
    HostCalls calls{.copies_to_device = 1, .bytes_to_device = piece};
    if (!block) {
      GRADUS_CHECK(cudaMemcpyAsync, target, source, size, cudaMemcpyHostToDevice, stream);
      calls.pageable_copies = 1;
    } else {
      std::memcpy(block->p, source, size);
      const cudaError_t status = cudaMemcpyAsync(target, block->p, size, cudaMemcpyHostToDevice, stream);
      if (status != cudaSuccess) shelf.put_back(block);
      check("copy", "cudaMemcpyAsync", status);
      GRADUS_CHECK(cudaEventRecord, block->is_read, stream);
      shelf.put_back(block);
    }
    count_calls(nullptr, calls);
  }
}

int64_t staging_blocks() { return blocks_kept; }

#undef GRADUS_CHECK

}  // namespace gradus::cuda
