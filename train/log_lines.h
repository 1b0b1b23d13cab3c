// Lines of a training's log.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/train/tally.h"

namespace gradus::training {

// A quantity of each step of this rank: the last value, and the mean over this run's part of the epoch.
struct Meter {
  double last = 0, sum = 0;
  int64_t count = 0;

  void add(double value) { last = value, sum += value, ++count; }
  double mean() const { return count ? sum / double(count) : 0; }
};

// The state of a training after a step, for a line of the log.
struct StepReport {
  int64_t step, images, skipped;       // of the whole training; images of all ranks together
  int64_t epoch, epochs;               // from 1
  int64_t batch, batches;              // of this epoch, from 1
  int64_t samples, total;              // of this epoch
  const Sums &recent, &all;            // since the line before; of this epoch
  const Meter &step_time, &data_time;  // seconds: of steps, and of their wait for data
  double images_per_second;
  std::string unit;
};

// step 100  12800 images  loss/d 0.6812  loss/g 0.9320  5210 images/s
std::string steps_line(const StepReport& r);
// Train Epoch: 1 [640/60000 (1%)]  Loss: 1.203912  Accuracy: 52.10%  5210 images/s
// Without accuracy if steps do not report it.
std::string epoch_line(const StepReport& r);
// Test set: Average loss: 0.0312, Accuracy: 9897/10000 (98.97%)
std::string test_line(const Sums& all);

}  // namespace gradus::training
