// Replays a failure found by the op fuzzer (fuzz_case.h): both operands have a stride of 0. Exits 1 if wrong.
#include "gradus/tests/ops/fuzz/fuzz_case.h"
int main() {
  return gradus::optest::replay({.op = "matmul",
                                 .variant = "batched",
                                 .alike = 0,
                                 .sample = 0,
                                 .shapes = {gradus::Shape{2, 17, 33}, gradus::Shape{2, 33, 18}},
                                 .below = {1.5, 1.5},
                                 .layouts = "bb",
                                 .dtype = gradus::DType::kF32,
                                 .threads = 1,
                                 .seed = 3u});
}
