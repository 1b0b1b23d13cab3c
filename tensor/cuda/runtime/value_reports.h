// How kernels report invalid values, such as a class index out of range, to the host, which throws the error
// when it next waits for the stream (value_errors.h).
//
// Note [Value reports]
// Each stream has a record in pinned host memory, which kernels write and the host reads without a copy. The
// first launch with an invalid value owns the record (compare-and-swap of its launch number); later launches
// do not write. Of the owner's reports the one with the smallest position stays, so the error is the same in
// every run.
//
// No atomic operation is wide enough for a position and a 64-bit value. So the value is split into three
// parts. Each word of the record has the position in its upper 40 bits and a part of the value in its lower
// 24 bits, and is written by atomicMin: all three words end with the smallest position.
#pragma once

#include <cstdint>

namespace gradus::cuda {

// A stream's record. A word of kNone is empty.
struct alignas(64) ValueRecord {
  static constexpr int kParts = 3, kPartBits = 24;
  using Word = unsigned long long;  // the 64-bit type of CUDA's atomics
  static constexpr Word kNone = ~Word{0};

  Word launch = 0;  // number of the launch that owns the record; 0: none
  Word limit = kNone, per_row = kNone;
  Word words[kParts] = {kNone, kNone, kNone};
};

// A kernel argument: where a launch reports, and under which number. A null record: reports are dropped.
struct ValueReports {
  ValueRecord* record;
  uint64_t launch;      // not 0, unique
  int64_t limit;        // for the error: the exclusive upper limit of valid values, say
  int64_t per_row = 1;  // for the error: the number of positions per row
};

}  // namespace gradus::cuda
