// The report of a failed job: the first failure, with all that is known about it, and how the
// other ranks ended.
#pragma once

#include <string>

#include "gradus/distributed/launch/supervisor.h"

namespace gradus::dist::internal {

// Returns several lines; empty for a job that did not fail.
std::string failure_report(const char* op, const Outcome& outcome);

}  // namespace gradus::dist::internal
