// Predicts how long a training step takes on two devices, from the times of each half alone.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gradus/examples/two_devices/networks.h"
#include "gradus/examples/two_devices/training.h"

namespace gradus::examples {

// Seconds for a number of images: fixed + per_image images.
struct LinearTime {
  double fixed = 0, per_image = 0;
  double operator()(int64_t images) const { return fixed + per_image * static_cast<double>(images); }
};

// Returns the line that makes the sum of squared relative errors at the measured points minimal; through the
// origin for a single point.
LinearTime fit(const std::vector<std::pair<int64_t, double>>& points);

struct HalfTimes {
  LinearTime forward, backward;
  double step = 0;  // of the optimizer
};
struct StepTimes {
  HalfTimes first, second;
};

// Times the halves on a few sizes of batches, while both devices are at work.
StepTimes measure(ModelParallelResNet50& net, const Batch& batch);

// Returns the seconds of a training step in splits. Each device does one thing after another: forwards in
// the order of the splits, then backwards, the last split first. The second device begins its backwards when
// it has done all of its forwards.
double predict(const StepTimes& times, int64_t batch, int64_t split_size);

// Returns the split size with the shortest predicted step.
int64_t best_split(const StepTimes& times, int64_t batch);

}  // namespace gradus::examples
