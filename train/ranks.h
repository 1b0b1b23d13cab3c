// What programs of several ranks do besides training: only one speaks, all must mean the same.
#pragma once

#include <functional>
#include <string>

#include "gradus/tensor/base/device.h"

namespace gradus::training {

// True on the rank that logs, shows progress and saves; always without a job.
bool is_first_rank();

// Prints a line, on rank 0 alone.
void print(const std::string& line);

// Calls `f` on the first rank of each host, and waits for it on all. Collective.
// Errors: what f throws, on its rank.
void on_one_rank_per_host(const std::function<void()>& f);

// "cpu, 2 ranks, 1 threads each": what computes.
std::string machine_text(Device device = kCPU);

// Collective.
// Errors: ValueError on all ranks when `value` is not the same everywhere, naming the first rank that differs
// and both values.
void check_same_on_all_ranks(const std::string& what, const std::string& value);

}  // namespace gradus::training
