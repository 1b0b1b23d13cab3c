// Implementation of shadow.h: arrays of cells of words and of bytes.
#include "gradus/tools/cuda_emulator/shadow.h"

#include <sys/mman.h>

#include <algorithm>

#include "gradus/tools/cuda_emulator/memory.h"

namespace gradus::cuda::emulated {

Shadow::Shadow(size_t memory_bytes)
    : memory_bytes_(memory_bytes),
      words_(static_cast<Cell*>(map_zeros(memory_bytes / kWordBytes * sizeof(Cell)))),
      bytes_(static_cast<Cell*>(map_zeros(memory_bytes * sizeof(Cell)))) {}

Shadow::~Shadow() {
  munmap(words_, memory_bytes_ / kWordBytes * sizeof(Cell));
  munmap(bytes_, memory_bytes_ * sizeof(Cell));
}

Conflict Shadow::enter(size_t offset, size_t bytes, uint32_t launch, const Clock& clock, Access access) {
  // The cell of an earlier word before and after this access. Adjacent words mostly have the same history, so
  // that the result can be copied.
  Cell before{}, after{};
  bool is_known = false;
  const size_t end = offset + bytes;
  for (size_t at = offset; at < end;) {
    const size_t n = std::min(kWordBytes - at % kWordBytes, end - at);
    Cell& word = words_[at / kWordBytes];
    const bool is_new = word.launch != launch;
    if (n < kWordBytes || (!is_new && word.is_split)) {
      if (const Conflict conflict = enter_bytes(at, n, launch, clock, access);
          conflict.kind != Conflict::kNone)
        return conflict;
    } else if (is_known && (is_new ? before.launch != launch : word == before)) {
      word = after;
    } else {
      before = word;
      Conflict conflict = emulated::enter(&word, launch, clock, access);
      conflict.at = at;
      if (conflict.kind != Conflict::kNone) return conflict;
      after = word;
      is_known = true;
    }
    at += n;
  }
  return {};
}

Conflict Shadow::enter_bytes(size_t offset, size_t bytes, uint32_t launch, const Clock& clock,
                             Access access) {
  Cell& word = words_[offset / kWordBytes];
  if (word.launch != launch || !word.is_split) {
    std::fill_n(bytes_ + offset / kWordBytes * kWordBytes, kWordBytes, word);
    word.launch = launch;
    word.is_split = true;
  }
  for (size_t at = offset; at < offset + bytes; ++at) {
    Conflict conflict = emulated::enter(bytes_ + at, launch, clock, access);
    conflict.at = at;
    if (conflict.kind != Conflict::kNone) return conflict;
  }
  return {};
}

}  // namespace gradus::cuda::emulated
