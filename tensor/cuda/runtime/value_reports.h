// What kernels tell of values that are errors: a class that is none, an index out of range. The host throws
// it where it next waits for the stream (value_errors.h).
//
// Note [Value reports]
// A stream has a record in memory of the host's that kernels reach, so the host looks at it without a copy.
// The first launch that has something to report takes the record, and those behind it find it taken. Of this
// launch's reports the one with the smallest position stays, which a loop would find first. So it is the same
// in every run.
//
// No atomic operation is wide enough for a position and its value. So the value is cut in three. Each word of
// the record has the position in its upper bits and a part of the value in its lower ones: the smallest
// number in each word is the smallest position's.
#pragma once

#include <cstdint>

namespace gradus::cuda {

struct alignas(64) ValueRecord {
  static constexpr int kParts = 3, kPartBits = 24;
  using Word = unsigned long long;  // the 64-bit type of CUDA's atomics
  static constexpr Word kNone = ~Word{0};

  Word launch = 0;  // that has taken it; 0: none
  Word limit = kNone, per_row = kNone;
  Word words[kParts] = {kNone, kNone, kNone};
};

// Where a launch reports. Null: nowhere.
struct ValueReports {
  ValueRecord* record;
  uint64_t launch;
  int64_t limit;        // that values must keep
  int64_t per_row = 1;  // positions of a row, where they are counted row by row
};

}  // namespace gradus::cuda
