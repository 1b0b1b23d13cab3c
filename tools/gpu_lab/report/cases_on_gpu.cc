// Runs the cases of the kernel report on a GPU, under Nsight Compute (traffic.py), which counts the memory
// traffic of their kernels. Prints a line "case<tab>name" before each.
#include <cstdio>
#include <exception>

#include "cases.h"

int main() {
  try {
    for (const report::Case& c : report::cases()) {
      std::printf("case\t%s\n", c.name.c_str());
      report::mark();
      c.run();
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cases_on_gpu: %s\n", e.what());
    return 1;
  }
}
