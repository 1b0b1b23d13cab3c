// Prints what a program is going to train and, at the end, its results, and writes the results to a JSON file. All
// texts are printed to stdout by rank 0 alone.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gradus/train/training.h"

namespace gradus::training {

// Prints the sizes of the data sets, the device, the ranks, the threads, the seed, and the network. Collective:
// all ranks compare their data sets.
// Errors: ValueError if ranks have different data sets.
void describe(const Training& training, const nn::Module& net, const data::DataLoader& test_loader);
// The same with a text about the network in place of the printed module.
void describe(const Training& training, const std::string& net, const data::DataLoader& test_loader);

// Prints the means of the last test (over all ranks) and the images trained per second, and calls write_summary.
// Not collective, but may be called on all ranks.
// Errors: StateError before the first test; FileError.
void report(const Training& training);

using SummaryValue = OptionValue;

// Writes a JSON object to the file that the program's option --summary names: the last and the best test, speed,
// peak memory, options, all tests, and the values in `more`. A slash in a name of `more` separates an object and
// its member: "metrics/fid". Replaces the file, so a later call with `more` may follow report(). Does nothing
// without --summary, and on ranks other than 0.
// Errors: FileError.
void write_summary(const Training& training,
                   const std::vector<std::pair<std::string, SummaryValue>>& more = {});

}  // namespace gradus::training
