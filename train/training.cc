#include "gradus/train/training.h"

#include <iostream>
#include <utility>

#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/base/error.h"
#include "gradus/train/program.h"
#include "gradus/train/ranks.h"
#include "gradus/train/text.h"

namespace gradus::training {
namespace {

std::vector<TrainingState::Part> with(std::vector<TrainingState::Part> parts,
                                      std::initializer_list<TrainingState::Part> more) {
  parts.insert(parts.end(), more);
  return parts;
}

}  // namespace

Training::Training(std::string program, const RunOptions& run, data::DataLoader& loader,
                   std::vector<TrainingState::Part> parts, TrainingOptions options)
    : program_(std::move(program)),
      run_(run),
      loader_(loader),
      options_(std::move(options)),
      tested_epochs_(epoch()),
      files_(program_, run_, loader_.dataset().name(), options_.fixed),
      finite_check_(program_, files_.path()),
      samples_(run_.sample_log),
      log_(run_, options_, loader_, counts_),
      state_(with(std::move(parts), {{"loader", loader_},
                                     {"tested", tested_epochs_},
                                     {"tested_steps", tested_steps_},
                                     {"images", counts_.images},
                                     {"steps", counts_.steps},
                                     {"seconds", counts_.seconds},
                                     {"skipped", finite_check_.skipped()}})) {
  if (options_.on_not_finite != OnNotFinite::kSkip) return;
  if (state_.modules().empty())
    throw ValueError(program_, "OnNotFinite::kSkip needs a module among the parts of the training");
  finite_check_.allow_skipping(state_.modules());
}

// ---- checkpoints ----

void Training::resume() {
  if (const std::string file = files_.find(options_.count_by == CountBy::kSteps); !file.empty()) load(file);
  samples_.begin(loader_.state());
  log_.open_events();
}

void Training::load(const std::string& file) {
  const io::LoadedCheckpoint loaded =
      state_.load(file, [&](const io::LoadedCheckpoint& from) { files_.check(from); });
  const io::Checkpoint& c = loaded.checkpoint;
  if (!loaded.warning.empty() && is_first_rank())
    std::cerr << program_ << ": " << loaded.warning << std::endl;
  log_.restore_epoch(internal::get_sums(c, "epoch"));
  history_ = internal::get_history(c);
  print(format("Resuming from %s: epoch %lld, %lld %s done", loaded.path.c_str(),
               static_cast<long long>(epoch()) + 1, static_cast<long long>(loader_.state().samples),
               options_.unit.c_str()));
}

void Training::save(const std::string& file) {
  finite_check_.read_values(log_.tally());
  log_.reduce();
  if (file.empty()) return;
  io::Checkpoint c = files_.identity();
  internal::put(c, "epoch", log_.epoch());
  internal::put_history(c, history_);
  state_.save(file, c);
}

// ---- epochs ----

bool Training::ended_in_epoch() const {
  if (dry_run_ended_) return true;
  if (run_.images > 0) return counts_.images >= run_.images;
  return run_.iterations > 0 && counts_.steps >= run_.iterations;
}

bool Training::ended() const {
  const bool by_epochs = run_.images == 0 && run_.iterations == 0;
  return ended_in_epoch() || (by_epochs && epoch() >= run_.epochs);
}

bool Training::begin_epoch() {
  if (options_.test && test_due()) make_test();
  if (ended()) return false;
  log_.begin_epoch();
  return true;
}

void Training::end_epoch() {
  log_.stop_progress();
  if (options_.on_epoch) options_.on_epoch();
  if (!saves_epoch()) return;
  state_.check_synchronized();
  if (!run_.dry_run) save(files_.path());
}

bool Training::saves_epoch() const {
  return options_.count_by == CountBy::kEpochs || run_.checkpoint_interval == 0 || ended();
}

// ---- steps ----

Training::Steps Training::begin() {
  resume();
  return Steps(*this);
}

Training::Steps::Steps(Training& training) : training_(&training) {
  const data::DataLoader& loader = training_->loader_;
  if (loader.size() == 0 && !training_->ended())
    throw ValueError("training", "there is no full batch of ", loader.global_batch_size(), " among the ",
                     loader.dataset().size(), " samples of ", loader.dataset().name());
  begin_step();
}

void Training::Steps::begin_step() {
  while (!at_ || training_->ended_in_epoch() || *at_ == std::default_sentinel) {
    if (at_) training_->end_epoch();
    at_.reset();
    if (!training_->begin_epoch()) return;
    at_.emplace(training_->loader_.begin());
  }
  step_ = training_->begin_step(**at_);
}

Training::Steps& Training::Steps::operator++() {
  training_->end_step(step_);
  if (!training_->ended_in_epoch()) ++*at_;
  begin_step();
  return *this;
}

Step Training::begin_step(const data::Batch& batch) {
  log_.begin_step();
  samples_.add(loader_.state(), batch.indices);
  finite_check_.begin_step(steps() + 1);
  const data::DataLoaderOptions& o = loader_.options();
  Step s;
  s.training_ = this;
  s.batch_ = &batch;
  s.number_ = steps() + 1;
  s.images_ = images() + batch.global_size;
  s.seed_ = run_.seed;
  s.rank_ = o.rank >= 0 ? o.rank : dist::get_rank();
  s.ranks_ = o.world_size > 0 ? o.world_size : dist::get_world_size();
  return s;
}

void Training::end_step(const Step& step) {
  Sums sums = step.sums_.value_or(Sums{.seen = step.batch().size()});
  sums += finite_check_.end_step(step.values_, log_.tally());
  log_.tally().add(sums);
  counts_.images += step.batch().global_size;
  ++counts_.steps;
  log_.count_seconds();
  dry_run_ended_ = run_.dry_run;

  const internal::EpochPosition at = internal::position_of(loader_);
  const bool last = at.samples == at.total || ended(), line = logs_step();
  if (line || last) {
    finite_check_.read_values(log_.tally());
    log_.reduce();
  }
  log_.show_step(line, last, state_, skipped());
  if (!last || !saves_epoch()) {
    const bool stop = stop_.agreed();
    if (stop || saves_step()) save(files_.path());
    if (stop) throw Interrupted{files_.path()};
  }
  log_.end_step();

  if (!options_.test || options_.test_every == 0 || !test_due()) return;
  log_.stop_progress();
  make_test();
  log_.start_progress();
}

bool Training::logs_step() const {
  return options_.count_by == CountBy::kSteps
             ? steps() % run_.log_interval == 0
             : (internal::position_of(loader_).batch - 1) % run_.log_interval == 0;
}

bool Training::saves_step() const {
  const int64_t count = options_.count_by == CountBy::kSteps ? steps() : internal::position_of(loader_).batch;
  return run_.checkpoint_interval > 0 && count % run_.checkpoint_interval == 0;
}

// ---- tests ----

bool Training::test_due() const {
  if (ended() && steps() > tested_steps_) return true;
  if (options_.test_every == 0) return epoch() > tested_epochs_;
  const int64_t tested_images = history_.empty() ? 0 : history_.back().images;
  return images() / options_.test_every > tested_images / options_.test_every;
}

void Training::make_test() {
  const Sums all = options_.test().read();
  log_.show_test(all);
  tested_epochs_ = epoch();
  tested_steps_ = steps();
  history_.push_back({.epoch = tested_epochs_,
                      .train = log_.epoch(),
                      .test = all,
                      .seconds = counts_.seconds,
                      .images = images()});
  if (!options_.keep_best || run_.dry_run) return;
  if (best() == last()) save(files_.path(".best"));
  save(files_.path());
}

void Training::test_only() {
  resume();
  make_test();
}

bool Training::end_test_step() {
  if (stop_.agreed()) throw Interrupted{files_.path()};
  return run_.dry_run;
}

// ---- results ----

const EpochResult& Training::last() const {
  if (history_.empty()) throw StateError("training", "there was no test yet");
  return history_.back();
}

const EpochResult& Training::best() const {
  if (history_.empty()) throw StateError("training", "there was no test yet");
  return best_of(history_, options_.best_by, options_.lower_is_better);
}

double Training::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace gradus::training
