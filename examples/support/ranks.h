// What programs of several ranks do besides training: only one speaks, all must mean the same.
#pragma once

#include <string>

namespace gradus::examples {

// True on the rank that logs, shows progress and saves; always without a job.
bool is_first_rank();

// Prints a line, on rank 0 alone.
void print(const std::string& line);

// "cpu, 2 ranks, 1 threads each": what computes.
std::string machine_text();

// Collective.
// Errors: ValueError on all ranks when `value` is not the same everywhere, naming the first rank that differs
// and both values.
void check_same_on_all_ranks(const std::string& what, const std::string& value);

}  // namespace gradus::examples
