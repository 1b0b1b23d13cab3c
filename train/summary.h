// The results of a training as JSON.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gradus/train/training.h"

namespace gradus::train {

// Prints the last test's means and the speed of training, and writes the summary.
void report(const Training& training);

// Writes to the file of --summary, if there is one, on rank 0: the last test and the best, speed, memory, the
// options, and each epoch. `more` are further figures of the program.
// Errors: FileError; StateError when there was no test.
void write_summary(const Training& training, const std::vector<std::pair<std::string, double>>& more = {});

}  // namespace gradus::train
