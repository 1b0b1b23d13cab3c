// The search for shapes at which an op is wrong. Cases (fuzz_case.h) have sizes at which the kernels that run
// change what they do. The constants of the kernels are read from their sources (kernel_sizes.py).
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "gradus/tests/ops/fuzz/fuzz_case.h"

namespace gradus::optest {

struct FuzzOptions {
  double seconds = 0;                                        // 0: no limit
  int64_t cases = 0;                                         // 0: no limit
  uint64_t seed = 1;                                         // the n-th case depends on it and n alone
  std::string op;                                            // only this one; "": all
  size_t failures = 1;                                       // ends after so many rows that are wrong
  std::function<void(const std::string&)> failed = nullptr;  // is told each at once
};

struct FuzzReport {
  int64_t cases = 0, refused = 0,
          gradients = 0;  // tried; among them refused by the op; whose gradients were compared
  double seconds = 0;
  std::vector<std::string> failures;  // what is wrong with a case, and its program; at most one of a row
};

// Searches until a case is bad or the limits are reached.
FuzzReport fuzz(const FuzzOptions& options);

// Writes a line for each row: which of its sizes the search may change.
void describe_rows(std::ostream& o);

}  // namespace gradus::optest
