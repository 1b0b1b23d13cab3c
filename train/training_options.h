// TrainingOptions: how a Training (train/training.h) tests, logs and saves; and the lines of its log. An
// "image" is a sample of any kind. Sums are named sums of logged values, with the number of samples
// (train/tally.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

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
  int64_t epoch, epochs;               // from 1; --epochs
  int64_t batch, batches;              // of this epoch, from 1
  int64_t samples, total;              // of this epoch
  const Sums &recent, &all;            // over all ranks: since the previous line; of this epoch
  const Meter &step_time, &data_time;  // seconds: of steps, and of their wait for data
  double images_per_second;
  std::string unit;
};

// Lines of the log:
// step 100  12800 images  loss/d 0.6812  loss/g 0.9320  5210 images/s
std::string steps_line(const StepReport& r);
// Train Epoch: 1 [640/60000 (1%)]  Loss: 1.203912  Accuracy: 52.10%  5210 images/s
// Without accuracy if steps do not report it.
std::string epoch_line(const StepReport& r);
// Test set: Average loss: 0.0312, Accuracy: 9897/10000 (98.97%)
std::string test_line(const Sums& all);

// What --log-interval and --checkpoint-interval count.
enum class CountBy {
  // Steps of the training. Without --checkpoint-interval K each epoch is saved, else each K-th step and the
  // end. The program resumes from --resume, or else from the latest checkpoint in --checkpoint-dir.
  kSteps,
  // Batches of each epoch. The first batch is logged, and each epoch is saved, also with
  // --checkpoint-interval. The program resumes only from --resume.
  kEpochs,
};

// The reaction to infinite or NaN gradients (Step::backward). kStop: the training ends with an error.
enum class OnNotFinite {
  kStop,
  kSkip,  // all ranks skip the network's step; 100 such steps in a row end the training
};

struct TrainingOptions {
  CountBy count_by = CountBy::kSteps;
  // Settings that a checkpoint and the training that resumes from it must share: {"network", "resnet20"}.
  std::vector<std::pair<std::string, std::string>> fixed = {};

  // Called on all ranks after the last step of each epoch and of the training, before the checkpoint and the
  // test. For schedules that step by epoch.
  std::function<void()> on_epoch = {};
  // Makes a test, and returns its sums over all ranks. Called on all ranks after each epoch, or after each
  // multiple of test_every images, and at the end. Null, or with --no-validate: no tests.
  std::function<Sums()> test = {};
  int64_t test_every = 0;  // images; 0: after each epoch
  // Steps of the training after which to test, and at the end; replaces test_every: {100, 1000, 10'000}.
  std::vector<int64_t> test_at = {};
  // Training::best() compares tests by this mean. A mean that is missing or not finite is the worst.
  std::string best_by = "accuracy";
  bool lower_is_better = false;
  // Also saves the checkpoint of the best test, as DIR/PROGRAM.best.ckpt.
  bool keep_best = false;
  // Also keeps the checkpoints of the last saves, as DIR/PROGRAM.step-N.ckpt with the number of steps; 0: none.
  int64_t keep_last = 0;

  OnNotFinite on_not_finite = OnNotFinite::kStop;
  // Returns warnings to print. Called after each line of the log, on all ranks, with the sums since the line
  // before and the number of steps in them.
  std::function<std::vector<std::string>(const Sums& recent, int64_t steps)> warnings = {};
  std::string unit = "images";  // the log's word for samples
  // Returns a line of the log; by default steps_line() or epoch_line(), by count_by.
  std::function<std::string(const StepReport&)> step_line = {};
  std::function<std::string(const Sums&)> test_line = training::test_line;
};

}  // namespace gradus::training
