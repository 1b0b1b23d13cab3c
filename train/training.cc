// Training: the loop over epochs and steps of a data loader, with logs, tests and checkpoints in between.
// Steps is its iterator: Steps::begin_step() fetches a batch and starts an epoch or ends one when due,
// end_step() counts, logs, saves and tests. All ranks run the same sequence, because the sums, the decision
// to stop and the tests are collective.
#include "gradus/train/training.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <utility>

#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/train/internal/training_impl.h"
#include "gradus/train/program.h"
#include "gradus/train/ranks.h"
#include "gradus/train/text.h"

namespace gradus::training {
namespace {

// Returns `parts` followed by `more`.
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
      impl_(new Impl(*this)),
      state_(with(std::move(parts), {{"loader", loader_},
                                     {"tested", tested_epochs_},
                                     {"tested_steps", tested_steps_},
                                     {"images", impl_->counts.images},
                                     {"steps", impl_->counts.steps},
                                     {"seconds", impl_->counts.seconds},
                                     {"skipped", impl_->finite_check.skipped()}})) {
  if (options_.keep_last < 0)
    throw ValueError(program_, "keep_last must be at least 0, got ", options_.keep_last);
  if (options_.on_not_finite != OnNotFinite::kSkip) return;
  if (state_.modules().empty())
    throw ValueError(program_, "OnNotFinite::kSkip needs a module among the parts of the training");
  impl_->finite_check.allow_skipping(state_.modules());
}

Training::~Training() = default;

// Loads the checkpoint to resume from, if any, and opens the logs.
void Training::resume() {
  if (const std::string file = impl_->files.find(options_.count_by == CountBy::kSteps); !file.empty())
    load(file);
  impl_->samples.begin(loader_.state());
  impl_->log.open_events();
  RandomGenerator& generator = *Context::current().generator;
  if (run_.diff_seed) generator.set_state({run_.seed + uint64_t(dist::get_rank()), generator.state()[1]});
}

void Training::load(const std::string& file) {
  const io::LoadedCheckpoint loaded =
      state_.load(file, [&](const io::LoadedCheckpoint& from) { impl_->files.check(from); });
  const io::Checkpoint& c = loaded.checkpoint;
  if (!loaded.warning.empty() && is_first_rank())
    std::cerr << program_ << ": " << loaded.warning << std::endl;
  impl_->log.restore_epoch(internal::get_sums(c, "epoch"));
  history_ = internal::get_history(c);
  print(format_text("Resuming from %s: epoch %lld, %lld %s done", loaded.path, epoch() + 1,
                    loader_.state().samples, options_.unit));
}

// Writes a checkpoint; "": only completes the sums over ranks.
void Training::save(const std::string& file) {
  impl_->finite_check.read_values(impl_->log.tally());
  impl_->log.reduce();
  if (file.empty()) return;
  io::Checkpoint c = impl_->files.identity();
  internal::put_sums(c, "epoch", impl_->log.epoch());
  internal::put_history(c, history_);
  state_.save(file, c);
  if (options_.keep_last > 0 && file == impl_->files.path())
    impl_->files.keep_last(steps(), options_.keep_last);
}

bool Training::ended_in_epoch() const {
  if (dry_run_ended_) return true;
  if (run_.images > 0) return impl_->counts.images >= run_.images;
  return run_.iterations > 0 && impl_->counts.steps >= run_.iterations;
}

bool Training::ended() const {
  const bool by_epochs = run_.images == 0 && run_.iterations == 0;
  return ended_in_epoch() || (by_epochs && epoch() >= run_.epochs);
}

bool Training::begin_epoch() {
  if (tests() && test_due()) run_test();
  if (ended()) return false;
  impl_->log.begin_epoch();
  return true;
}

void Training::end_epoch() {
  impl_->log.stop_progress();
  if (options_.on_epoch) options_.on_epoch();
  if (!saves_epoch()) return;
  state_.check_synchronized();
  if (!run_.dry_run) save(impl_->files.path());
}

bool Training::saves_epoch() const {
  return options_.count_by == CountBy::kEpochs || run_.checkpoint_interval == 0 || ended();
}

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

// Fetches the next batch. `iterator_` is null between epochs, and once the training has ended.
void Training::Steps::begin_step() {
  while (!iterator_ || training_->ended_in_epoch() || *iterator_ == std::default_sentinel) {
    if (iterator_) training_->end_epoch();
    iterator_.reset();
    if (!training_->begin_epoch()) return;
    iterator_.emplace(training_->loader_.begin());
  }
  step_ = training_->begin_step(**iterator_);
}

Training::Steps& Training::Steps::operator++() {
  training_->end_step(step_);
  if (!training_->ended_in_epoch()) ++*iterator_;
  begin_step();
  return *this;
}

Step Training::begin_step(const data::Batch& batch) {
  impl_->log.begin_step();
  impl_->samples.add(loader_.state(), batch.indices);
  impl_->finite_check.begin_step(steps() + 1);
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
  sums += impl_->finite_check.end_step(step.values_, impl_->log.tally());
  impl_->log.tally().add(sums);
  impl_->counts.images += step.batch().global_size;
  ++impl_->counts.steps;
  impl_->log.count_seconds();
  dry_run_ended_ = run_.dry_run;
  const internal::EpochPosition at = internal::position_of(loader_);
  const bool last = at.samples == at.total || ended(), line = logs_step();
  if (line || last) {
    impl_->finite_check.read_values(impl_->log.tally());
    impl_->log.reduce();
  }
  impl_->log.show_step(line, last, state_, skipped());
  if (!last || !saves_epoch()) {
    const bool stop = impl_->stop.should_stop();
    if (stop || saves_step()) save(impl_->files.path());
    if (stop) throw Interrupted{impl_->files.path()};
  }
  impl_->log.end_step();
  const bool in_epoch = options_.test_every > 0 || !options_.test_at.empty();
  if (!tests() || !in_epoch || !test_due()) return;
  impl_->log.stop_progress();
  run_test();
  impl_->log.start_progress();
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

bool Training::test_due() const {
  if (ended() && steps() > tested_steps_) return true;
  if (!options_.test_at.empty())
    return steps() > tested_steps_ && std::ranges::count(options_.test_at, steps()) > 0;
  if (options_.test_every == 0) return epoch() > tested_epochs_;
  const int64_t tested_images = history_.empty() ? 0 : history_.back().images;
  return images() / options_.test_every > tested_images / options_.test_every;
}

void Training::run_test() {
  const Sums all = options_.test().read();
  impl_->log.show_test(all);
  tested_epochs_ = epoch();
  tested_steps_ = steps();
  history_.push_back({.epoch = tested_epochs_,
                      .train = impl_->log.epoch(),
                      .test = all,
                      .seconds = impl_->counts.seconds,
                      .images = images()});
  if (!options_.keep_best || run_.dry_run) return;
  if (best() == last()) save(impl_->files.path(".best"));
  save(impl_->files.path());
}

void Training::test_only() {
  if (!options_.test) throw StateError("training", "there is no test: set TrainingOptions::test");
  resume();
  run_test();
}

bool Training::end_test_step() {
  if (impl_->stop.should_stop()) throw Interrupted{impl_->files.path()};
  return run_.dry_run;
}

io::EventWriter* Training::events() { return impl_->log.events(); }
int64_t Training::steps() const { return impl_->counts.steps; }
int64_t Training::images() const { return impl_->counts.images; }
int64_t Training::skipped() const { return impl_->finite_check.skipped(); }
const Sums& Training::recent() const { return impl_->log.recent(); }

double Training::images_per_second() const {
  return impl_->counts.seconds > 0 ? double(images()) / impl_->counts.seconds : 0;
}

const EpochResult& Training::last() const {
  if (history_.empty()) throw StateError("training", "there was no test yet");
  return history_.back();
}

const EpochResult& Training::best() const {
  if (history_.empty()) throw StateError("training", "there was no test yet");
  const double sign = options_.lower_is_better ? -1 : 1;
  return *std::ranges::max_element(history_, {}, [&](const EpochResult& e) {
    const double mean = sign * e.test.mean(options_.best_by);
    return e.test.contains(options_.best_by) && std::isfinite(mean)
               ? mean
               : -std::numeric_limits<double>::infinity();
  });
}

double Training::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace gradus::training
