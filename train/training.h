// Training: what a program does around its steps. It shows and logs how well they do, writes checkpoints and
// goes on from them, also in the middle of an epoch, and ends when somebody asks.
//
//   training::Training training("mnist", args, loader,
//                            {{"model", net}, {"optimizer", opt}, {"schedule", schedule}});
//   training.resume();
//   for (;;) {
//     if (training.test_due()) training.end_test(test());
//     if (!training.next_epoch()) break;
//     for (const data::Batch& b : training.batches()) {
//       ...the step...
//       training.end_step(training::score(loss, logits, b));
//     }
//     schedule.step();
//     training.end_epoch();
//   }
//
// A GAN names its two networks and two optimizers. What a step reports is up to the program: any sums, under
// any names. All calls are collective. Rank 0 alone prints and writes.
//
// A training without epochs and tests is a range of steps (step.h). The loop goes on from the checkpoint in
// its folder, if there is one, logs what the steps log, and saves:
//
//   training::Training training("ring", {.model = net, .loader = loader, .optimizers = {{"disc", opt_d},
//                                     {"gen", opt_g}}, .ema = ema},
//                            {.images = 2'000'000, .checkpoint_dir = "runs/ring"});
//   for (training::Step& s : training) {
//     ...the step, with s.batch()...
//     ema.update(s.images());
//   }
#pragma once

#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/data/dataloader.h"
#include "gradus/io/checkpoint.h"
#include "gradus/io/event_writer.h"
#include "gradus/nn/layer.h"
#include "gradus/train/command_line.h"
#include "gradus/train/gan/ema.h"
#include "gradus/train/internal/sample_log.h"
#include "gradus/train/internal/stop.h"
#include "gradus/train/progress.h"
#include "gradus/train/step.h"
#include "gradus/train/tally.h"
#include "gradus/train/training_state.h"

namespace gradus::training {

// How an epoch went, over all ranks.
struct EpochResult {
  int64_t epoch = 0;  // epochs done: 1 after the first
  Sums train, test;
  double seconds = 0;  // of training, over all runs so far
  int64_t images = 0;  // shown so far

  bool operator==(const EpochResult&) const = default;
};

// A quantity of each step of this rank: the last value, and the mean since the epoch began or was resumed.
struct Meter {
  double last = 0, sum = 0;
  int64_t count = 0;

  void add(double value) { last = value, sum += value, ++count; }
  double mean() const { return count ? sum / double(count) : 0; }
};

// What a line of the log may tell.
struct StepReport {
  int64_t epoch, epochs;     // from 1
  int64_t batch, batches;    // of this epoch, from 1
  int64_t samples, total;    // of this epoch
  const Sums &recent, &all;  // since the report before; of this epoch
  const Meter &step, &data;  // seconds: of whole steps, and of them waiting for data
  double images_per_second;
};
// Returns a line of the log, without accuracy where steps have none:
// Train Epoch: 1 [640/60000 (1%)]  Loss: 1.203912  Accuracy: 52.10%  5210 images/s
std::string step_line(const StepReport& r);
// Returns the line of a test:
// Test set: Average loss: 0.0312, Accuracy: 9897/10000 (98.97%)
std::string test_line(const Sums& all);

// What is trained, with what and on what, by role. All of it must outlive the training.
struct Trained {
  // None where `more` has a pipeline, {pipe, opt}, which is model and optimizer.
  std::optional<std::reference_wrapper<nn::Module>> model = {};
  data::DataLoader& loader;
  std::vector<std::pair<std::string, std::reference_wrapper<optim::Optimizer>>> optimizers = {};
  std::optional<std::reference_wrapper<gan::Ema>> ema = {};
  std::vector<TrainingState::Part> more = {};  // schedules, scalers, numbers, a pipeline, ...
};

// What follows when gradients are not finite (Step::backward).
enum class OnNotFinite {
  kStop,
  kSkip,  // the network's step is left out, on all ranks; 100 in a row end the training
};

struct TrainingOptions {
  // What must be as it was when a checkpoint was written, by name: "network", "resnet20".
  std::vector<std::pair<std::string, std::string>> fixed = {};
  // Makes a test, and returns its sums over all ranks. next_epoch() calls it whenever one is due; without it
  // the program calls test_due() and end_test() itself.
  std::function<Sums()> test = {};
  // Of a range of steps: a test whenever so many more images have been shown, and at the end; 0:
  // after each epoch.
  int64_t test_every = 0;
  // best() compares tests by this mean. One that is missing or not finite is the worst.
  std::string best_by = "accuracy";
  bool lower_is_better = false;
  // Keeps the checkpoint of the best test too, as DIR/PROGRAM.best.ckpt.
  bool keep_best = false;
  // For a range of steps.
  OnNotFinite on_not_finite = OnNotFinite::kStop;
  // Returns warnings, which are printed: given the sums since the line of the log before, and how many steps
  // they are of. Called on all ranks, with the same.
  std::function<std::vector<std::string>(const Sums& recent, int64_t steps)> warnings = {};
  std::string unit = "images";  // what the log calls samples
  std::function<std::string(const StepReport&)> step_line = training::step_line;
  std::function<std::string(const Sums&)> test_line = training::test_line;
};

class Training {
 public:
  class Batches;
  class Steps;

  // `parts` are what is trained, and with what: modules, optimizers, schedules, averages, a GradScaler,
  // numbers. The loader is a part by itself. With data parallel training all of it is the same on every rank.
  // Everything it is given must outlive it.
  // Errors: ValueError for names of parts, as TrainingState.
  Training(std::string program, const RunOptions& run, data::DataLoader& loader,
           std::vector<TrainingState::Part> parts, TrainingOptions options = {});

  // A training that is a range of steps. The parts are "model", "optimizer_NAME", "ema", and `more`.
  // Errors: as above; ValueError for OnNotFinite::kSkip without a model.
  Training(std::string program, Trained trained, const RunOptions& run, TrainingOptions options = {});

  // Loads the checkpoint that --resume names. After a restart by the launcher it loads this job's own last
  // one instead. Without either the training begins at its beginning.
  // Errors: FileError, ValueError for a checkpoint of another training.
  void resume();

  // Makes a test if one is due and the options have one. Returns true while there are epochs left, or steps
  // where --iterations counts.
  bool next_epoch();
  // Returns the batches that are left of this epoch. The body of the loop makes a step with each batch,
  // and calls end_step().
  Batches batches();
  // Counts what the step has seen on this rank, and logs it. Saves where --checkpoint-interval says so.
  // Errors: Interrupted, after saving, when somebody asked to stop.
  void end_step(const Sums& mine);
  // Writes the checkpoint, but not in a dry run. Compares the parameters of all ranks before.
  // Errors: MismatchError naming the first tensor that differs.
  void end_epoch();

  // The steps that are left, of all epochs. Begins with resume(); without --resume it goes on from the latest
  // checkpoint in --checkpoint-dir, if there is one. Saves every --checkpoint-interval steps (0: after each
  // epoch), and at the end.
  // Errors: as resume, end_step and end_epoch; ValueError for a loader without a batch.
  Steps begin();
  std::default_sentinel_t end() const { return {}; }

  // Returns true after an epoch or TrainingOptions::test_every images, and at the very end, until a test
  // has been made.
  bool test_due() const;
  // Ends a step of a test. Returns true when it was the last one: in a dry run.
  // Errors: Interrupted.
  bool end_test_step();
  // Prints and keeps the result, of all ranks together.
  void end_test(const Sums& all);

  // Tests a classifier: runs it over the loader in evaluation mode, without recording, and returns
  // cross-entropy and accuracy over all ranks. Afterward, also after an error, each module has the mode
  // that it had before. Collective.
  // Errors: Interrupted.
  Sums evaluate(nn::Layer& net, data::DataLoader& loader);
  // The same for a model whose logits come in another way: those of a pipeline.
  //   training.evaluate(pipe.module(), loader,
  //                     [&](const Tensor& x) { return pipe.forward(x, {.everywhere = true}); });
  Sums evaluate(nn::Module& model, data::DataLoader& loader,
                const std::function<Tensor(const Tensor&)>& logits_of);
  // Prints what is trained, on what and where: the sizes of the data sets, ranks, threads, seed, and
  // the network. Collective.
  // Errors: ValueError when ranks have different data sets.
  void describe(const nn::Module& net, const data::DataLoader& test_loader) const;
  void describe(const std::string& net, const data::DataLoader& test_loader) const;

  // Writes the checkpoint, to `file` instead of the latest one's if that is not empty.
  void save(const std::string& file = "");
  // Returns "DIR/mnist.ckpt", and "DIR/mnist.best.ckpt" for kind ".best"; "" without --checkpoint-dir.
  std::string checkpoint_path(const std::string& kind = "") const;

  // Returns the writer of --tensorboard: on rank 0, else null. Its steps are those of steps().
  io::EventWriter* events() { return events_.get(); }
  int64_t steps() const { return steps_; }    // over all runs of this training
  int64_t images() const { return images_; }  // shown in them, to all ranks together
  // Returns how many backwards were left out because gradients were not finite.
  int64_t skipped() const { return skipped_; }

  int64_t epoch() const { return int64_t(loader_.epoch()); }  // epochs done
  const data::DataLoader& loader() const { return loader_; }
  const RunOptions& run() const { return run_; }
  const std::string& program() const { return program_; }
  const std::vector<EpochResult>& history() const { return history_; }
  // Returns the sums of the last line of the log, over all ranks.
  const Sums& recent() const { return recent_; }
  // Return the result of the last test, and of the best one.
  // Errors: StateError before the first.
  const EpochResult& last() const;
  const EpochResult& best() const;
  // Returns the speed of all ranks together, over all runs of this training.
  double images_per_second() const { return seconds_ > 0 ? double(images_) / seconds_ : 0; }
  // Returns the time since this object was made.
  double seconds() const;

 private:
  bool ended() const;
  // Ended, though the epoch has batches left.
  bool stops_in_epoch() const {
    return dry_run_done_ || (run_.images > 0       ? images_ >= run_.images
                             : run_.iterations > 0 ? steps_ >= run_.iterations
                                                   : false);
  }
  void begin_progress();
  std::string find_checkpoint() const;  // "": none
  void check(const io::LoadedCheckpoint& from) const;
  void load(const std::string& file);
  void begin_step(const data::Batch& b);
  // Makes the step of the batch at hand; ends it.
  Step step_with(const data::Batch& b);
  void end_step(Step& step);
  // Errors: ValueError for a value that is not finite.
  void check_finite(int64_t step, const std::string& name, double value);
  // Reads what steps have logged that a device had still to compute. Waits for it.
  // Errors: as check_finite.
  void read_values();
  // Leaves a backward of the step out, or ends the training. Collective. `found` says what is not finite.
  friend class Step;
  void refuse(const Step& step, const std::string& network, const std::string& found);
  void warn();
  std::string figures() const;
  void write_events(const std::string& prefix, const Sums& sums);

  std::string program_;
  const RunOptions run_;
  data::DataLoader& loader_;
  TrainingOptions options_;
  internal::SampleLog samples_;
  std::unique_ptr<io::EventWriter> events_;
  internal::Stop stop_;
  Tally train_;
  Sums recent_;               // since the line of the log before
  Sums unlogged_;             // what a checkpoint has added up since
  int64_t recent_until_ = 0;  // steps when the last line was logged
  std::vector<EpochResult> history_;
  int64_t images_ = 0, steps_ = 0;  // trained on, and how long that took
  double seconds_ = 0;
  int64_t tested_ = 0;         // epochs done when the last test was made
  int64_t tested_steps_ = -1;  // and steps; -1: no test yet
  TrainingState state_;        // of all of these
  bool dry_run_done_ = false;
  bool is_range_ = false;                      // of steps, and not of epochs with batches
  nn::Module* model_ = nullptr;                // of a range that names one
  std::map<std::string, double> last_values_;  // that this rank's steps have logged
  struct Unread {
    int64_t step;
    std::string name;
    Tensor number;
    bool was_skipped;  // the step
  };
  std::vector<Unread> unread_;
  int64_t skipped_ = 0, skipped_in_row_ = 0;  // backwards
  int64_t skipped_step_ = -1;                 // the last step with one
  std::vector<Tensor> buffers_;               // as before the step, if it may be skipped
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  // Of the epoch at hand.
  std::optional<Progress> progress_;
  double seconds_before_ = 0;
  int64_t images_of_step_ = 0;
  std::chrono::steady_clock::time_point step_ended_;
  Meter step_time_, data_time_;
};

// An input range.
class Training::Batches {
 public:
  explicit Batches(Training& training) : training_(training) {}

  class Iterator {
   public:
    Iterator(Training& training, data::DataLoader::Iterator at);
    const data::Batch& operator*() const { return *at_; }
    Iterator& operator++();
    bool operator==(std::default_sentinel_t) const;

   private:
    Training* training_;
    data::DataLoader::Iterator at_;
  };
  Iterator begin() const;
  std::default_sentinel_t end() const { return {}; }

 private:
  Training& training_;
};

// An input iterator over the steps of all epochs. Moving it ends the step.
class Training::Steps {
 public:
  using value_type = Step;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::input_iterator_tag;

  explicit Steps(Training& training);
  Step& operator*() { return step_; }
  Steps& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return !at_; }

 private:
  void find();  // the next batch, in this epoch or the next

  Training* training_;
  std::optional<Batches::Iterator> at_;
  Step step_;
};

}  // namespace gradus::training
