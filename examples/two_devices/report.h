// The results of the model_parallel program: measured and predicted times as a table, charts and JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradus/examples/two_devices/plot.h"
#include "gradus/examples/two_devices/prediction.h"

namespace gradus::examples {

// The seconds of each repetition of one way to train.
struct Timing {
  std::string name;
  int64_t split_size = 0;  // 0: the batch is not split
  double predicted = 0;    // seconds; 0: no prediction
  std::vector<double> seconds = {};

  double mean() const;
  double deviation() const;  // standard deviation, with n - 1
};

// Returns the median over the repetitions i of a.seconds[i] / b.seconds[i].
double ratio(const Timing& a, const Timing& b);

struct Report {
  Timing one_device, model_parallel, data_parallel;
  std::vector<Timing> pipelined;  // by split size
  int64_t chosen_split = 0;       // the split size that was predicted to be the fastest
  StepTimes halves;

  const Timing& chosen() const;
  const Timing& best() const;  // of the measured split sizes
  std::string table() const;
  std::string conclusions() const;
  std::vector<Chart> charts() const;
  std::string json() const;
};

}  // namespace gradus::examples
