// Replays a failure found by the op fuzzer (fuzz_case.h): 1025 columns leave a tile of 1. Exits 1 if wrong.
#include "gradus/tests/ops/fuzz/fuzz_case.h"
int main() {
  return gradus::optest::replay({.op = "sum",
                                 .variant = "over [0] 3",
                                 .alike = 0,
                                 .sample = 0,
                                 .shapes = {gradus::Shape{64, 1025}},
                                 .below = {1.5},
                                 .layouts = "c",
                                 .dtype = gradus::DType::kF32,
                                 .threads = 1,
                                 .seed = 7u});
}
