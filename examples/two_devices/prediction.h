// Predicts the time of a training step on two devices from the times of each half of the network alone.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gradus/examples/two_devices/networks.h"
#include "gradus/examples/two_devices/training.h"

namespace gradus::examples {

// A linear model of time in seconds: fixed + per_image * images.
struct LinearTime {
  double fixed = 0, per_image = 0;
  double operator()(int64_t images) const { return fixed + per_image * static_cast<double>(images); }
};

// Returns the line that makes the sum of squared relative errors at the measured points minimal; through the
// origin for a single point.
LinearTime fit(const std::vector<std::pair<int64_t, double>>& points);

// Times of one half of the network.
struct HalfTimes {
  LinearTime forward, backward;
  double step = 0;  // of the optimizer, in seconds
};
struct StepTimes {
  HalfTimes first, second;
};

// Measures the halves on batches of 1, 4, 16, ... images, while both devices are busy.
StepTimes measure(ModelParallelResNet50& net, const Batch& batch);

// Returns the seconds of a training step in splits. Each device executes its work in order: the forwards in
// the order of the splits, then the backwards, the last split first. The second device begins its backwards
// after all of its forwards.
double predict(const StepTimes& times, int64_t batch, int64_t split_size);

// Returns the split size with the shortest predicted step.
int64_t best_split(const StepTimes& times, int64_t batch);

}  // namespace gradus::examples
