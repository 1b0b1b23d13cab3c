// The op fuzzer, a search for shapes at which an op is wrong. Its cases (fuzz_case.h) have sizes around the
// constants (tiles, thresholds) of the kernels that run; kernel_sizes.py reads these from sources.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "gradus/tests/ops/fuzz/fuzz_case.h"

namespace gradus::optest {

struct FuzzOptions {
  double seconds = 0;   // 0: no limit
  int64_t cases = 0;    // 0: no limit
  uint64_t seed = 1;    // the n-th case depends on it and n alone
  std::string op;       // only this one; "": all
  size_t failures = 1;  // the number of failing rows that ends the search
  std::function<void(const std::string&)> failed = nullptr;  // called with each failure at once
};

struct FuzzReport {
  int64_t cases = 0, refused = 0,
          gradients = 0;  // cases tried; of these refused by the op; with compared gradients
  double seconds = 0;
  std::vector<std::string> failures;  // what is wrong with a case, and its program; at most one of a row
};

// Searches until `failures` rows have failed or a limit is reached.
FuzzReport fuzz(const FuzzOptions& options);

// Writes a line for each row: which of its sizes the search may change.
void describe_rows(std::ostream& o);

}  // namespace gradus::optest
