#pragma once

namespace report {

// Launches a kernel named case_begins, which does nothing: a profiler sees where a case begins.
void mark();

}  // namespace report
