// The output of the model_parallel program: a table of times, a plot, a summary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradus/examples/two_devices/plot.h"
#include "gradus/examples/two_devices/prediction.h"

namespace gradus::examples {

// Seconds of a way to train, of each repetition.
struct Timing {
  std::string name;
  int64_t split_size = 0;  // 0: the batch is not split
  double predicted = 0;    // 0: nothing is predicted
  std::vector<double> seconds = {};

  double mean() const;
  double deviation() const;  // standard deviation, with n - 1
};

// Returns the median over the repetitions of a's time divided by b's.
double ratio(const Timing& a, const Timing& b);

struct Report {
  Timing one_device, model_parallel, data_parallel;
  std::vector<Timing> pipelined;  // by split size
  int64_t chosen_split = 0;       // one of those
  StepTimes halves;

  const Timing& chosen() const;
  const Timing& best() const;  // of the measured split sizes
  std::string table() const;
  std::string conclusions() const;
  std::vector<Chart> charts() const;
  std::string json() const;
};

}  // namespace gradus::examples
