#include "gradus/examples/support/training.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "gradus/distributed/data_parallel/bcast_checkpoint.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/examples/support/program.h"
#include "gradus/examples/support/ranks.h"
#include "gradus/examples/support/text.h"
#include "gradus/tensor/runtime/environment.h"

namespace gradus::examples {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

Environment environment() { return read_environment().value_or(Environment{}); }

int64_t global_batch_size(const data::DataLoader& loader) {
  const data::DataLoaderOptions& o = loader.options();
  return o.global_batch_size ? o.global_batch_size : o.batch_size * dist::get_world_size();
}

void put(io::Checkpoint& c, const std::string& name, const Sums& s) {
  c.put(name + ".loss", s.loss);
  c.put(name + ".correct", s.correct);
  c.put(name + ".correct_in_5", s.correct_in_5);
  c.put(name + ".seen", s.seen);
}

Sums get(const io::Checkpoint& c, const std::string& name) {
  return {.loss = c.get<double>(name + ".loss"),
          .correct = c.get<int64_t>(name + ".correct"),
          .seen = c.get<int64_t>(name + ".seen"),
          .correct_in_5 = c.get<int64_t>(name + ".correct_in_5")};
}

void put(io::Checkpoint& c, const std::vector<EpochResult>& history) {
  c.put("history.size", int64_t(history.size()));
  for (size_t i = 0; i < history.size(); ++i) {
    const std::string name = concat("history.", i);
    c.put(name + ".epoch", history[i].epoch);
    put(c, name + ".train", history[i].train);
    put(c, name + ".test", history[i].test);
    c.put(name + ".seconds", history[i].seconds);
  }
}

std::vector<EpochResult> get_history(const io::Checkpoint& c) {
  std::vector<EpochResult> history;
  const int64_t size = c.get<int64_t>("history.size");
  for (int64_t i = 0; i < size; ++i) {  // an entry that is missing ends it
    const std::string name = concat("history.", i);
    history.push_back({.epoch = c.get<int64_t>(name + ".epoch"),
                       .train = get(c, name + ".train"),
                       .test = get(c, name + ".test"),
                       .seconds = c.get<double>(name + ".seconds")});
  }
  return history;
}

}  // namespace

std::string step_line(const StepReport& r) {
  return format("Train Epoch: %lld [%lld/%lld (%.0f%%)]\tLoss: %.6f\tAccuracy: %.2f%%\t%.0f images/s",
                static_cast<long long>(r.epoch), static_cast<long long>(r.samples),
                static_cast<long long>(r.total), 100.0 * double(r.samples) / double(r.total),
                r.recent.mean_loss(), 100 * r.all.accuracy(), r.images_per_second);
}

std::string test_line(const Sums& all) {
  return format("Test set: Average loss: %.4f, Accuracy: %lld/%lld (%.2f%%)", all.mean_loss(),
                static_cast<long long>(all.correct), static_cast<long long>(all.seen), 100 * all.accuracy());
}

Training::Training(std::string program, const RunOptions& run, TrainingParts parts, TrainingOptions options)
    : program_(std::move(program)),
      run_(run),
      parts_(parts),
      options_(std::move(options)),
      samples_(run.sample_log),
      tested_(epoch()),
      state_{{"model", parts_.model},
             {"optimizer", parts_.optimizer},
             {"schedule", parts_.schedule},
             {"loader", parts_.loader},
             {"tested", tested_},
             {"images", images_},
             {"steps", steps_},
             {"seconds", seconds_}} {}

// ---- checkpoints ----

std::string Training::checkpoint_path(const std::string& kind) const {
  if (run_.checkpoint_dir.empty()) return "";
  return (fs::path(run_.checkpoint_dir) / (program_ + kind + ".ckpt")).string();
}

// After a restart by the launcher this job's own last checkpoint, if it has written one; else what the user
// names. Only rank 0 need see the files.
io::LoadedCheckpoint Training::find_checkpoint() const {
  return dist::bcast_checkpoint([&] {
    const Environment job = environment();
    const std::string last = checkpoint_path();
    if (job.restart_count > 0 && !last.empty() && (fs::exists(last) || fs::exists(last + ".previous"))) {
      io::LoadedCheckpoint found = io::load_checkpoint(last);
      if (found.checkpoint.get<std::string>("job") == job.job_id) return found;  // else an earlier training's
    }
    return run_.resume.empty() ? io::LoadedCheckpoint() : io::load_checkpoint(run_.resume);
  });
}

void Training::resume() {
  if (const io::LoadedCheckpoint from = find_checkpoint(); !from.path.empty()) load(from);
  samples_.begin(parts_.loader.state());
  if (run_.tensorboard.empty() || !is_first_rank()) return;
  // What an earlier run wrote of the steps to come is not shown.
  events_ = std::make_unique<io::EventWriter>(
      run_.tensorboard,
      io::EventWriterOptions{.purge_step = steps_ > 0 ? std::optional(steps_ + 1) : std::nullopt});
}

void Training::load(const io::LoadedCheckpoint& loaded) {
  const io::Checkpoint& c = loaded.checkpoint;
  if (!loaded.warning.empty() && is_first_rank())
    std::cerr << program_ << ": " << loaded.warning << std::endl;
  if (c.get<std::string>("program") != program_)
    throw FileError("resume", loaded.path, ": expected a checkpoint of ", program_, ", given one of ",
                    c.get<std::string>("program"));
  const std::string dataset = parts_.loader.dataset().name();
  if (c.get<std::string>("dataset") != dataset)
    throw ValueError("resume", loaded.path, " was trained on ", c.get<std::string>("dataset"), ", not on ",
                     dataset);
  for (const auto& [name, value] : options_.fixed)
    if (const std::string saved = c.get<std::string>("fixed." + name); saved != value)
      throw ValueError("resume", loaded.path, " was trained with ", name, ' ', saved, ", not with ", value);
  state_.restore(c);
  train_ = Tally(get(c, "epoch"));
  history_ = get_history(c);
  print(format("Resuming from %s: epoch %lld, %lld images done", loaded.path.c_str(),
               static_cast<long long>(epoch()) + 1, static_cast<long long>(parts_.loader.state().samples)));
}

// Rank 0 writes, the others go on meanwhile.
void Training::save(const std::string& file) {
  train_.reduce();
  if (run_.checkpoint_dir.empty()) return;
  io::Checkpoint c = state_.collect();
  if (!is_first_rank()) return;
  c.put("program", program_);
  c.put("dataset", parts_.loader.dataset().name());
  c.put("job", environment().job_id);
  for (const auto& [name, value] : options_.fixed) c.put("fixed." + name, value);
  put(c, "epoch", train_.total());
  put(c, history_);
  fs::create_directories(run_.checkpoint_dir);
  io::save_checkpoint(file.empty() ? checkpoint_path() : file, c);
}

// ---- epochs ----

bool Training::next_epoch() {
  if (dry_run_done_ || epoch() >= run_.epochs) return false;
  const data::LoaderState at = parts_.loader.state();
  if (at.samples == 0) train_ = Tally();
  seconds_before_ = seconds_;
  step_time_ = data_time_ = {};
  progress_.emplace(ProgressOptions{.title = format("Epoch %d/%d", int(at.epoch) + 1, int(run_.epochs)),
                                    .total = parts_.loader.dataset().size(),
                                    .done = at.samples,
                                    .shown = is_first_rank()});
  step_ended_ = Clock::now();
  return true;
}

Training::Batches Training::batches() { return Batches(*this); }

void Training::begin_step(const data::Batch& b) {
  data_time_.add(seconds_since(step_ended_));
  images_of_step_ = b.global_size;
  samples_.add(parts_.loader.state(), b.indices);
}

void Training::end_step(const Sums& mine) {
  const data::LoaderState at = parts_.loader.state();
  const data::DataLoader& loader = parts_.loader;
  const int64_t total = loader.dataset().size(), global = global_batch_size(loader);
  const int64_t batch = (at.samples + global - 1) / global;  // from 1
  train_.add(mine);
  images_ += images_of_step_;
  ++steps_;
  seconds_ = seconds_before_ + progress_->seconds();
  step_time_.add(seconds_since(step_ended_));
  dry_run_done_ = run_.dry_run;

  const bool last = at.samples == total || run_.dry_run;
  const bool log = (batch - 1) % run_.log_interval == 0;
  Sums recent;
  if (log || last) recent = train_.reduce();
  progress_->update(at.samples, figures());
  if (log) {
    write_events("train", recent);
    if (events_) events_->add_scalar("learning_rate", parts_.optimizer.lr(), steps_);
    if (events_) events_->add_scalar("images_per_second", progress_->units_per_second(), steps_);
  }
  if (log && !Progress::is_bar())
    print(options_.step_line({.epoch = int64_t(at.epoch) + 1,
                              .epochs = run_.epochs,
                              .batch = batch,
                              .batches = (total + global - 1) / global,
                              .samples = at.samples,
                              .total = total,
                              .recent = recent,
                              .all = train_.total(),
                              .step = step_time_,
                              .data = data_time_,
                              .images_per_second = progress_->units_per_second()}));
  if (last) progress_->finish(figures());
  if (!last) {  // the end of the epoch saves as well
    const bool stop = stop_.agreed();
    const bool due = run_.checkpoint_interval > 0 && batch % run_.checkpoint_interval == 0;
    if (stop || due) save();
    if (stop) throw Interrupted{checkpoint_path()};
  }
  step_ended_ = Clock::now();
}

std::string Training::figures() const {
  return format("loss %.4f  accuracy %.2f %%", train_.total().mean_loss(), 100 * train_.total().accuracy());
}

void Training::write_events(const std::string& prefix, const Sums& sums) {
  if (!events_) return;
  events_->add_scalar(prefix + "/loss", sums.mean_loss(), steps_);
  events_->add_scalar(prefix + "/accuracy", sums.accuracy(), steps_);
}

void Training::end_epoch() {
  progress_.reset();
  dist::check_synchronized(parts_.model);  // says so, should ranks ever have trained apart
  if (!run_.dry_run) save();
}

// ---- tests ----

bool Training::test_due() const {
  const bool ended = dry_run_done_ || epoch() >= run_.epochs;
  return epoch() > tested_ || (ended && history_.empty());
}

bool Training::end_test_step() {
  if (stop_.agreed()) throw Interrupted{checkpoint_path()};
  return run_.dry_run;
}

void Training::end_test(const Sums& all) {
  print(options_.test_line(all));
  write_events("test", all);
  if (events_) events_->flush();
  tested_ = epoch();
  history_.push_back({.epoch = tested_, .train = train_.total(), .test = all, .seconds = seconds_});
  if (!options_.keep_best || run_.dry_run) return;
  if (best() == last()) save(checkpoint_path(".best"));
  save();
}

const EpochResult& Training::last() const {
  if (history_.empty()) throw StateError("training", "there was no test yet");
  return history_.back();
}

const EpochResult& Training::best() const {
  last();
  return *std::max_element(history_.begin(), history_.end(), [](const EpochResult& a, const EpochResult& b) {
    return a.test.accuracy() < b.test.accuracy();
  });
}

double Training::seconds() const { return seconds_since(start_); }

// ---- batches ----

Training::Batches::Iterator::Iterator(Training& training, data::DataLoader::Iterator at)
    : training_(&training), at_(std::move(at)) {
  if (at_ != std::default_sentinel) training_->begin_step(*at_);
}

Training::Batches::Iterator& Training::Batches::Iterator::operator++() {
  if (training_->dry_run_done_) return *this;
  ++at_;
  if (at_ != std::default_sentinel) training_->begin_step(*at_);
  return *this;
}

bool Training::Batches::Iterator::operator==(std::default_sentinel_t) const {
  return training_->dry_run_done_ || at_ == std::default_sentinel;
}

Training::Batches::Iterator Training::Batches::begin() const {
  return {training_, training_.parts_.loader.begin()};
}

}  // namespace gradus::examples
