// One case of the search: a row of the op table with its own sizes, values, layouts, dtype and
// threads. Its value is compared with the row's reference in plain f64, and its gradient with
// differences of the reference.
#pragma once

#include <string>
#include <vector>

#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {

struct FuzzCase {
  std::string op, variant;
  int alike = 0;  // rows of the same op and variant that come before
  size_t sample = 0;
  std::vector<Shape> shapes;  // of the inputs
  std::vector<double> below;  // what indices stay below, of inputs that are indices
  std::string layouts;        // a letter for each input; row-major (c), with gaps between all
                              // elements (s), dims in reversed order (r), channels innermost (n), a part of a
                              // larger tensor (o), repeated along a dim (b)
  DType dtype = DType::kF32;
  int threads = 1;
  uint64_t seed = 1;  // of the values
};

// Of a result that is compared: its reference takes a dozen times 8 bytes for each.
inline constexpr int64_t kMostElements = int64_t(1) << 24;

struct FuzzOutcome {
  std::string wrong;      // "": nothing
  bool refused = false;   // by the op, by a reference that does not follow, or as too large
  bool gradient = false;  // was compared
};
FuzzOutcome outcome_of(const OpCase& row, const FuzzCase& c);

// Returns what is wrong: "" when nothing is, or when the op refuses such inputs.
std::string check(const FuzzCase& c);
// A C++ program of five lines that checks this one case.
std::string program_of(const FuzzCase& c);
// Prints what is wrong and returns 1, or returns 0: for the programs that the search prints.
int replay(const FuzzCase& c);

}  // namespace gradus::optest
