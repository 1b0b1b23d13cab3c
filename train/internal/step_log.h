// StepLog: reports the steps of a training: sums over all ranks, lines or a progress bar on rank 0, and event
// files. SampleLog: a file with the samples of each step.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/data/dataloader.h"
#include "gradus/io/event_writer.h"
#include "gradus/train/command_line.h"
#include "gradus/train/progress.h"
#include "gradus/train/training_options.h"
#include "gradus/train/training_state.h"

namespace gradus::training::internal {

// Counted over all runs of a training; images of all ranks.
struct Counts {
  int64_t steps = 0, images = 0;
  double seconds = 0;  // of steps, without tests and saving
};

// The position of a loader after a batch. `epoch` and `batch` count from 1, batches of the loader's current
// size.
struct EpochPosition {
  int64_t epoch, batch, batches;
  int64_t samples, total;  // of the epoch: so far, and all
};
EpochPosition position_of(const data::DataLoader& loader);

// Records the samples of each step in a text file, which rank 0 writes, so that tests can check that each sample
// is used once. Every run of a training appends to the file:
//   from EPOCH SAMPLES              a run begins at this position; earlier lines of later positions are void
//   EPOCH SAMPLES INDEX INDEX ...   a step of all ranks ends at this position, and uses these samples
// The line of a step is written before the step changes a weight.
class SampleLog {
 public:
  explicit SampleLog(std::filesystem::path file) : file_(std::move(file)) {}  // "": none

  void begin(const data::LoaderState& at) const;
  // Collective, when there is a file.
  void add(const data::LoaderState& at, const std::vector<int64_t>& indices) const;

 private:
  void write(const std::string& line) const;
  std::filesystem::path file_;
};

class StepLog {
 public:
  // All of these must outlive the log. Updates counts.seconds.
  StepLog(const RunOptions& run, const TrainingOptions& options, const data::DataLoader& loader,
          Counts& counts)
      : run_(run), options_(options), loader_(loader), counts_(counts) {}

  void open_events();  // of --tensorboard, on rank 0
  io::EventWriter* events() const { return events_.get(); }

  void begin_epoch();  // also after resuming in an epoch
  // Start and stop the bar and the clock of counts.seconds, which stands still during tests.
  void start_progress();
  void stop_progress() { progress_.reset(); }

  void begin_step() { data_time_.add(seconds_since(step_ended_)); }  // when the loader has returned the batch
  void count_seconds();                                              // when the step has been computed
  // Updates the bar. write_line: also writes a line and events. is_last (of an epoch): ends the bar. If either
  // is true, the caller has called reduce(), and recent() becomes the sums since the last line.
  void show_step(bool write_line, bool is_last, const TrainingState& state, int64_t skipped);
  void end_step() { step_ended_ = Clock::now(); }
  void show_test(const Sums& all);

  Tally& tally() { return tally_; }
  const Sums& epoch() const { return tally_.total(); }
  void restore_epoch(Sums sums) { tally_ = Tally(std::move(sums)); }
  // Adds the sums of all ranks since the last call to those of the epoch and of the next line. Collective.
  void reduce() { unlogged_ += tally_.reduce(); }
  const Sums& recent() const { return recent_; }  // of the last line

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point t) {
    return std::chrono::duration<double>(Clock::now() - t).count();
  }
  std::string means() const;  // of the epoch
  void print_line(int64_t skipped) const;
  void write_events(const std::string& prefix, const Sums& sums);
  void warn();

  const RunOptions& run_;
  const TrainingOptions& options_;
  const data::DataLoader& loader_;
  Counts& counts_;
  std::unique_ptr<io::EventWriter> events_;
  Tally tally_;               // of the epoch
  Sums recent_, unlogged_;    // of the last line; since the last line
  int64_t warned_steps_ = 0;  // steps before the last call of warnings
  std::optional<Progress> progress_;
  double seconds_before_ = 0;  // counts.seconds at start_progress()
  Clock::time_point step_ended_;
  Meter step_time_, data_time_;
};

}  // namespace gradus::training::internal
