// Helpers for programs of several ranks. Without a job the program is the only rank.
#pragma once

#include <functional>
#include <string>

#include "gradus/tensor/base/device.h"

namespace gradus::training {

struct RunOptions;

bool is_first_rank();

// Prints a line to std::cout on rank 0, and flushes.
void print(const std::string& line);

// Calls `f` on the first rank of each host. All ranks wait. Collective.
// Errors: those of f, on its rank alone; the other ranks then wait until the job fails.
void on_one_rank_per_host(const std::function<void()>& f);

// Returns "cpu, 2 ranks, 1 threads each"; with one rank "cpu, 8 threads".
std::string machine_text(Device device = kCPU);
// The same with all devices of --devices: "cuda:0,cuda:1, 8 threads".
std::string machine_text(const RunOptions& run);

// Collective.
// Errors: ValueError on all ranks if `value` differs from rank 0's, with the first such rank and both values.
// `what` is a plural noun that begins the message, such as "data sets".
void check_same_on_all_ranks(const std::string& what, const std::string& value);

}  // namespace gradus::training
