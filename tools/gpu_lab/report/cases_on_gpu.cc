// Runs the report's cases on a GPU, where a profiler counts what their kernels move (traffic.py).
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
