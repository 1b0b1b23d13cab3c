// What a user sees of a job that failed: the first failure, with all that is known about it, and how
// the others ended.
#pragma once

#include <string>

#include "gradus/distributed/launch/supervisor.h"

namespace gradus::dist::internal {

// Several lines. Empty for a job that did not fail.
std::string failure_report(const char* op, const Outcome& outcome);

}  // namespace gradus::dist::internal
