// The cases of the kernel report: each runs a Gradus kernel on operands of about 1 MiB, and states the
// minimal number of bytes that its algorithm must read and write in global memory: each operand once in a launch, and
// between launches what the next one needs. What a launch reads again is not counted: known_exceptions.h has the reason.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace report {

struct Case {
  std::string name;
  double bytes;  // minimal bytes read and written
  double most;   // limit of the ratio of moved bytes to `bytes`
  std::function<void()> run;
};

std::vector<Case> cases();

// Launches an empty kernel named case_begins, which marks the beginning of a case in a profile.
void mark();

}  // namespace report
