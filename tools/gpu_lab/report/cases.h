// Gradus' kernels on operands of 1 MiB, of which it is known how many bytes must move.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace report {

struct Case {
  std::string name;
  double bytes;  // that must move
  double most;   // times these may move
  std::function<void()> run;
};

std::vector<Case> cases();

// Launches a kernel named case_begins, which does nothing: a profiler sees where a case begins.
void mark();

}  // namespace report
