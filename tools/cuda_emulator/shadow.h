// Shadow memory of the race checker: the last writer and the last readers of each byte of device and shared
// memory, and the rule that decides whether two accesses are ordered.
//
// Most accesses are to whole words of 4 bytes. A word has one cell for its four bytes until an access to a
// part of it splits the word, for the rest of the launch (of the block, in shared memory): then each byte has
// a cell of its own.
//
// Note [Order between threads]
// Time in a block is the number of its completed barriers and warp-wide waits. A thread's accesses carry the
// time of the latest wait that the thread has passed. Two accesses of different threads are ordered if a
// barrier of the block lies between them, or if both threads belong to one warp and the later one has waited,
// directly or through others, for the earlier one since its access. Nothing orders two blocks of one launch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradus::cuda::emulated {

inline constexpr uint32_t kNobody = 0xffffffffu;

// Blocks are numbered in the order in which they run; a number is 22 bits, a thread 10 bits of an id.
constexpr uint32_t thread_id(uint32_t block, uint32_t thread) { return block << 10 | thread; }

// The last accesses to a word or a byte. Of the readers, only those after the last write are kept.
struct Cell {
  uint32_t launch;  // number of the launch (shared memory: of the block); a cell with an older one is empty
  uint32_t writer;  // thread id
  uint32_t write_time;
  uint32_t readers;         // block << 5 | warp
  uint32_t lanes;           // mask of the readers' lanes
  uint32_t read_time : 28;  // time of the latest read
  uint32_t written_atomically : 1;
  uint32_t read_by_warps : 1;   // by several warps of one block
  uint32_t read_by_blocks : 1;  // by several blocks
  uint32_t is_split : 1;        // a word whose bytes have their own cells

  bool operator==(const Cell&) const = default;
};
static_assert(sizeof(Cell) == 24);

// A thread's view of time.
struct Clock {
  uint32_t block, thread;  // the block's number; the thread's index
  uint32_t now;
  uint32_t barrier;            // the time of the block's latest barrier
  const uint32_t* lanes_seen;  // for each lane of its warp: the latest wait of it that this thread knows of

  uint32_t id() const { return thread_id(block, thread); }
  uint32_t warp() const { return block << 5 | thread >> 5; }

  // Returns whether an access by `who` at `time` comes before what this thread does now.
  bool is_after(uint32_t who, uint32_t time) const {
    if (who == id()) return true;
    if (who >> 10 != block) return false;
    if (time < barrier) return true;
    return who >> 5 == warp() && lanes_seen[who & 31] > time;
  }
  // The same for all readers of a cell.
  bool is_after_readers(const Cell& cell) const {
    if (cell.read_by_blocks || cell.readers >> 5 != block) return false;
    if (cell.read_time < barrier) return true;
    if (cell.read_by_warps || cell.readers != warp()) return false;
    for (uint32_t lanes = cell.lanes & ~(1u << (thread & 31)); lanes; lanes &= lanes - 1)
      if (lanes_seen[__builtin_ctz(lanes)] <= cell.read_time) return false;
    return true;
  }
};

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// What an access conflicts with.
struct Conflict {
  enum Kind : uint8_t { kNone, kEarlierWrite, kEarlierRead } kind = kNone;
  uint32_t thread = kNobody;  // the other thread's id, where one is known
  size_t at = 0;              // the offset of the first byte that conflicts
};

// Records an access in a cell, unless it conflicts with an earlier one. Atomic accesses do not conflict with
// each other.
inline Conflict enter(Cell* cell, uint32_t launch, const Clock& clock, Access access) {
  if (cell->launch != launch) *cell = {launch, kNobody, 0, kNobody, 0, 0, 0, 0, 0, 0};
  if (cell->writer != kNobody && !(access == Access::kAtomic && cell->written_atomically) &&
      !clock.is_after(cell->writer, cell->write_time))
    return {Conflict::kEarlierWrite, cell->writer};
  if (access == Access::kRead) {
    if (cell->readers == kNobody || clock.is_after_readers(*cell)) {
      // An access that is ordered after this read is ordered after the earlier reads, too.
      cell->readers = clock.warp();
      cell->lanes = 0;
      cell->read_by_warps = cell->read_by_blocks = 0;
    } else if (cell->readers >> 5 != clock.block) {
      cell->read_by_blocks = 1;
    } else if (cell->readers != clock.warp()) {
      cell->read_by_warps = 1;
    }
    cell->lanes |= 1u << (clock.thread & 31);
    if (cell->read_time < clock.now || cell->lanes == 1u << (clock.thread & 31)) cell->read_time = clock.now;
    return {};
  }
  if (cell->readers != kNobody && !clock.is_after_readers(*cell)) {
    const bool one = !cell->read_by_warps && !cell->read_by_blocks;
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(cell->lanes | 1u << 31));
    return {Conflict::kEarlierRead, one ? cell->readers << 5 | lane : kNobody};
  }
  cell->writer = clock.id();
  cell->write_time = clock.now;
  cell->written_atomically = access == Access::kAtomic;
  cell->readers = kNobody;
  return {};
}

// The cells of a range of memory.
class Shadow {
 public:
  explicit Shadow(size_t memory_bytes);  // a multiple of 4
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // Records an access to `bytes` bytes from `offset` on, up to the first one that conflicts with an earlier
  // access of the launch.
  Conflict enter(size_t offset, size_t bytes, uint32_t launch, const Clock& clock, Access access);

 private:
  static constexpr size_t kWordBytes = 4;
  // Splits the word unless it is split, and records an access to `bytes` of its bytes from `offset` on.
  Conflict enter_bytes(size_t offset, size_t bytes, uint32_t launch, const Clock& clock, Access access);

  size_t memory_bytes_;
  // The system provides pages on first access.
  Cell* words_;
  Cell* bytes_;
};

}  // namespace gradus::cuda::emulated
