// FuzzCase: one case of the op fuzzer (fuzz.h), which searches for shapes at which an op gives wrong results.
// A case runs a row of the op test table (op_table.h) with other sizes, values, layouts, dtype and thread
// count. The result is compared with the row's f64 reference, the gradient with finite differences of the
// reference.
#pragma once

#include <string>
#include <vector>

#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {

struct FuzzCase {
  std::string op, variant;    // names of the row
  int alike = 0;              // index of the row among the rows with the same op and variant
  size_t sample = 0;          // index in OpCase::samples: the number of inputs and how they are filled
  std::vector<Shape> shapes;  // of each input, instead of the sample's
  std::vector<double> below;  // per input: exclusive upper bound of the values of a Fill::kInteger
  // One letter per input. c: row-major; s: row-major with all strides doubled; r: column-major; n: channels
  // last; o: a part of a larger tensor; b: stride 0 in one dim.
  std::string layouts;
  DType dtype = DType::kF32;  // of the inputs, except those with a fixed dtype
  int threads = 1;            // of the op's kernels
  uint64_t seed = 1;          // of all random choices: values, offsets of layout o, dim of layout b
};

// Maximal number of elements of a result. The comparison needs about a dozen f64 numbers per element.
inline constexpr int64_t kMaxElements = int64_t(1) << 24;

struct FuzzOutcome {
  std::string wrong;  // description of the wrong element, gradient or exception; "" if none
  // The case was not compared: the op threw an Error, the reference supports only the sample's sizes, or the
  // result exceeds kMaxElements.
  bool refused = false;
  bool gradient = false;  // whether the gradient was compared too
};
// Runs the case on `row`, the row that the case names. Exceptions of the op and of the reference become part
// of the outcome. Restores the caller's number of threads.
FuzzOutcome outcome_of(const OpCase& row, const FuzzCase& c);

// Finds the row of the case and returns outcome_of().wrong; "" also for a case that was refused. Returns an
// error text if the program has no such row.
std::string check(const FuzzCase& c);
// Returns the source of a C++ program whose main() calls replay(c). The fuzzer prints it for a failure.
std::string program_of(const FuzzCase& c);
// Prints the result of check(c) to stdout. Returns 0 if nothing is wrong, else 1.
int replay(const FuzzCase& c);

}  // namespace gradus::optest
