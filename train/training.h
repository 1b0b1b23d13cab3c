// Training: the steps of a training as a range. Between them it logs, tests, and writes checkpoints. It
// resumes from a checkpoint, also in the middle of an epoch and on another number of ranks, and ends after
// Ctrl-C.
//
//   training::Training training("mnist", args, loader,
//                               {{"model", net}, {"optimizer", opt}, {"schedule", schedule}},
//                               {.count_by = training::CountBy::kEpochs,
//                                .on_epoch = [&] { schedule.step(); },
//                                .test = [&] { return training::evaluate(training, net, test_loader); }});
//   for (training::Step& s : training) {
//     ...the step, with s.batch()...
//     s.log(training::score(loss, logits, s.batch()));
//   }
//
// A GAN lists two networks and two optimizers, and logs its losses: Step (step.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/data/dataloader.h"
#include "gradus/train/command_line.h"
#include "gradus/train/step.h"
#include "gradus/train/training_options.h"
#include "gradus/train/training_state.h"

namespace gradus::io {
class EventWriter;
}

namespace gradus::training {

// The result of a test and of the training before it, over all ranks. Checkpoints contain all results.
struct EpochResult {
  int64_t epoch = 0;   // completed epochs
  Sums train, test;    // named sums over samples, such as "loss"
  double seconds = 0;  // of training, over all runs
  int64_t images = 0;  // shown in the training

  bool operator==(const EpochResult&) const = default;
};

class Training {
 public:
  class Steps;

  // `parts` are named references to what a checkpoint contains: modules, optimizers, schedules, averages, a
  // GradScaler, a pipeline with its optimizer, variables. The loader is always a part. With data parallelism
  // all of them are the same on every rank. The loader and the parts must outlive the training; `run` is
  // copied. While a Training exists, the first SIGINT or SIGTERM is a request to stop.
  // Errors: ValueError for names of parts, as TrainingState, for OnNotFinite::kSkip without a module, and for a
  // negative keep_last.
  Training(std::string program, const RunOptions& run, data::DataLoader& loader,
           std::vector<TrainingState::Part> parts, TrainingOptions options = {});
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // The remaining steps of all epochs. Collective, as is each increment: rank 0 prints and writes.
  // begin() resumes: after a restart by the launcher from the job's latest checkpoint, else from that of
  // --resume, else as CountBy says.
  // Errors: FileError, ValueError for a checkpoint of another training, or a loader without a batch;
  // MismatchError if ranks have different parameters at the end of an epoch; Interrupted, after saving, if a
  // rank got SIGINT or SIGTERM.
  Steps begin();
  std::default_sentinel_t end() const { return {}; }

  // Resumes, and runs only the test. Collective. Errors: those of begin(); StateError without
  // TrainingOptions::test.
  void test_only();
  // For the loop of a test, after each batch: returns whether to end the loop (--dry-run). Collective.
  // Errors: Interrupted.
  bool end_test_step();

  // Returns the writer of --tensorboard, whose steps are those of steps(); null on other ranks or without it.
  io::EventWriter* events();
  int64_t steps() const;                                      // over all runs
  int64_t images() const;                                     // over all runs, of all ranks together
  int64_t skipped() const;                                    // steps of networks, OnNotFinite::kSkip
  int64_t epoch() const { return int64_t(loader_.epoch()); }  // completed epochs
  // Returns the speed of all ranks together, over all runs.
  double images_per_second() const;
  double seconds() const;  // since construction
  // Returns the sums of the last line of the log, over all ranks.
  const Sums& recent() const;
  // Return the results of all tests, of the last one and of the best one; valid until the next test.
  // Errors of last and best: StateError before the first test.
  const std::vector<EpochResult>& history() const { return history_; }
  const EpochResult& last() const;
  const EpochResult& best() const;

  const std::string& program() const { return program_; }
  const RunOptions& run() const { return run_; }
  const data::DataLoader& loader() const { return loader_; }

 private:
  friend class Step;

  void resume();
  void load(const std::string& file);
  void save(const std::string& file);

  // Runs a test if one is due. Returns whether steps remain.
  bool begin_epoch();
  void end_epoch();
  Step begin_step(const data::Batch& batch);
  void end_step(const Step& step);
  bool tests() const { return options_.test && !run_.no_validate; }
  bool test_due() const;
  void run_test();

  bool ended() const;
  bool ended_in_epoch() const;  // though batches of the epoch may remain
  bool logs_step() const;
  bool saves_step() const;
  bool saves_epoch() const;

  std::string program_;
  const RunOptions run_;
  data::DataLoader& loader_;
  const TrainingOptions options_;
  std::vector<EpochResult> history_;
  int64_t tested_epochs_ = 0, tested_steps_ = -1;  // at the last test; -1: none
  bool dry_run_ended_ = false;
  struct Impl;  // train/internal/training_impl.h
  const std::unique_ptr<Impl> impl_;
  TrainingState state_;  // the parts, the loader, and the counts
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// An input iterator over the steps; the Training must outlive it. An increment ends the step: it logs, tests
// and saves as due, and reads the next batch. All ranks increment together.
class Training::Steps {
 public:
  using value_type = Step;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::input_iterator_tag;

  explicit Steps(Training& training);
  Step& operator*() { return step_; }
  Steps& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return !iterator_; }

 private:
  void begin_step();  // with the next batch, of this epoch or the next

  Training* training_;
  std::optional<data::DataLoader::Iterator> iterator_;  // none: the training has ended
  Step step_;
};

}  // namespace gradus::training
