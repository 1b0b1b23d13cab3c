// Describes a training, and reports its results: printed, and as JSON.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gradus/train/training.h"

namespace gradus::training {

// Prints the sizes of the data sets, the ranks, the threads, the seed, and the network. Collective.
// Errors: ValueError if ranks have different data sets.
void describe(const Training& training, const nn::Module& net, const data::DataLoader& test_loader);
void describe(const Training& training, const std::string& net, const data::DataLoader& test_loader);

// Prints the means of the last test and the speed of training, and writes the summary.
void report(const Training& training);

using SummaryValue = OptionValue;

// Writes the file of --summary on rank 0: the last and the best test, speed, memory, options, all tests, and
// `more` values of the program. A slash in a name opens a section: "metrics/fid".
// Errors: FileError.
void write_summary(const Training& training,
                   const std::vector<std::pair<std::string, SummaryValue>>& more = {});

}  // namespace gradus::training
