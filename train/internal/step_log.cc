// StepLog: console lines or a progress bar, and TensorBoard events, from the sums of a training's steps.
// SampleLog: a text file with the samples of each step. Only rank 0 writes and prints. One thread uses them;
// SampleLog::add is collective if there is a file.
#include "gradus/train/internal/step_log.h"

#include <fstream>
#include <set>
#include <utility>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/object.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/blocked_signals.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/train/ranks.h"

namespace gradus::training::internal {

EpochPosition position_of(const data::DataLoader& loader) {
  const data::LoaderState at = loader.state();
  const int64_t total = loader.dataset().size(), global = loader.global_batch_size();
  return {.epoch = int64_t(at.epoch) + 1,
          .batch = (at.samples + global - 1) / global,
          .batches = (total + global - 1) / global,
          .samples = at.samples,
          .total = total};
}

void SampleLog::begin(const data::LoaderState& at) const {
  if (!file_.empty() && is_first_rank()) write(concat("from ", at.epoch, ' ', at.samples));
}

void SampleLog::add(const data::LoaderState& at, const std::vector<int64_t>& indices) const {
  if (file_.empty()) return;
  std::string line = concat(at.epoch, ' ', at.samples);
  std::set<int> replicas;  // the ranks of a replica have the same samples
  for (const std::string& bytes :
       dist::gather_object(dist::to_wire(std::pair(Job::current()->replica().index, indices)))) {
    const auto [replica, of_rank] = dist::from_wire<std::pair<int, std::vector<int64_t>>>(bytes);
    if (!replicas.insert(replica).second) continue;
    for (const int64_t i : of_rank) line += concat(' ', i);
  }
  if (is_first_rank()) write(line);
}

void SampleLog::write(const std::string& line) const {
  const gradus::internal::BlockedSignals blocked;
  std::ofstream out(file_, std::ios::app);
  out << line << '\n' << std::flush;
  if (!out) throw FileError("sample_log", "cannot write ", file_.string());
}

void StepLog::open_events() {
  if (run_.tensorboard.empty() || !is_first_rank()) return;
  // Hides the events that an earlier run wrote after its last checkpoint.
  const auto purge_step = counts_.steps > 0 ? std::optional(counts_.steps + 1) : std::nullopt;
  events_ =
      std::make_unique<io::EventWriter>(run_.tensorboard, io::EventWriterOptions{.purge_step = purge_step});
}

// Resumed within an epoch, the sums of its first part stay (restore_epoch).
void StepLog::begin_epoch() {
  if (loader_.state().samples == 0) tally_ = Tally(), unlogged_ = {};
  step_time_ = data_time_ = {};
  start_progress();
}

void StepLog::start_progress() {
  const EpochPosition at = position_of(loader_);
  seconds_before_ = counts_.seconds;
  const bool by_epochs = run_.images == 0 && run_.iterations == 0;
  progress_.emplace(ProgressOptions{
      .title = by_epochs ? concat("Epoch ", at.epoch, '/', run_.epochs) : concat("Epoch ", at.epoch),
      .total = at.total,
      .done = at.samples,
      .unit = options_.unit,
      .shown = is_first_rank()});
  step_ended_ = Clock::now();
}

void StepLog::count_seconds() {
  counts_.seconds = seconds_before_ + progress_->seconds();
  step_time_.add(seconds_since(step_ended_));
}

void StepLog::show_step(bool write_line, bool is_last, const TrainingState& state, int64_t skipped) {
  if (write_line || is_last) recent_ = std::exchange(unlogged_, {});
  progress_->update(position_of(loader_).samples, means());
  if (write_line) {
    write_events("train", recent_);
    if (events_) {
      const auto optimizers = state.optimizers();
      for (const auto& [name, optimizer] : optimizers)
        events_->add_scalar(optimizers.size() > 1 ? "learning_rate/" + name : "learning_rate",
                            optimizer->lr(), counts_.steps);
      events_->add_scalar("images_per_second", progress_->units_per_second(), counts_.steps);
    }
    if (!Progress::is_bar()) print_line(skipped);
  }
  if (is_last) progress_->finish(means());
  if (write_line || is_last) warn();
}

void StepLog::print_line(int64_t skipped) const {
  const EpochPosition at = position_of(loader_);
  const StepReport report = {.step = counts_.steps,
                             .images = counts_.images,
                             .skipped = skipped,
                             .epoch = at.epoch,
                             .epochs = run_.epochs,
                             .batch = at.batch,
                             .batches = at.batches,
                             .samples = at.samples,
                             .total = at.total,
                             .recent = recent_,
                             .all = epoch(),
                             .step_time = step_time_,
                             .data_time = data_time_,
                             .images_per_second = progress_->units_per_second(),
                             .unit = options_.unit};
  if (options_.step_line)
    print(options_.step_line(report));
  else
    print(options_.count_by == CountBy::kSteps ? steps_line(report) : epoch_line(report));
}

void StepLog::show_test(const Sums& all) {
  print(options_.test_line(all));
  write_events("test", all);
  if (events_) events_->flush();
}

void StepLog::write_events(const std::string& prefix, const Sums& sums) {
  if (!events_) return;
  for (const auto& [name, sum] : sums.of)
    events_->add_scalar(prefix + "/" + name, sums.mean(name), counts_.steps);
}

// Returns "loss 0.1234  accuracy 97.1 %".
std::string StepLog::means() const {
  std::string text;
  for (const auto& [name, sum] : epoch().of)
    text += (text.empty() ? "" : "  ") + mean_text(name, epoch().mean(name));
  return text;
}

// Prints the warnings that TrainingOptions::warnings makes of the sums since the last line.
void StepLog::warn() {
  if (options_.warnings)
    for (const std::string& text : options_.warnings(recent_, counts_.steps - warned_steps_))
      print("Warning: " + text);
  warned_steps_ = counts_.steps;
}

}  // namespace gradus::training::internal
