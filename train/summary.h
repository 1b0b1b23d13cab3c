// The results of a training as JSON.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "gradus/train/training.h"

namespace gradus::training {

// Prints the last test's means and the speed of training, and writes the summary.
void report(const Training& training);

// A figure of a summary: a number or a word.
struct SummaryValue {
  template <class T>
    requires std::is_arithmetic_v<T>
  SummaryValue(T number) : value(static_cast<double>(number)) {}
  SummaryValue(std::string word) : value(std::move(word)) {}
  SummaryValue(const char* word) : value(std::string(word)) {}

  std::variant<double, std::string> value;
};

// Writes to the file of --summary, if there is one, on rank 0: the last test and the best, if there was one,
// speed, memory, the options, and each epoch. `more` are further figures of the program. A slash in a name
// begins a section: "metrics/fid".
// Errors: FileError.
void write_summary(const Training& training,
                   const std::vector<std::pair<std::string, SummaryValue>>& more = {});

}  // namespace gradus::training
