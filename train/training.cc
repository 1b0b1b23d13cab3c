#include "gradus/train/training.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <sstream>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/losses/cross_entropy.h"
#include "gradus/distributed/group/attempt.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/io/checkpoint_file.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/train/internal/numbers.h"
#include "gradus/train/program.h"
#include "gradus/train/ranks.h"
#include "gradus/train/text.h"

namespace gradus::training {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostSkippedInARow = 100;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

Environment environment() { return read_environment().value_or(Environment{}); }

void put(io::Checkpoint& c, const std::string& name, const Sums& s) {
  std::string names;
  for (const auto& [key, sum] : s.of) {
    names += key + '\n';
    c.put(concat(name, ".sum.", key), sum);
  }
  for (const auto& [key, count] : s.seen_of) c.put(concat(name, ".count.", key), count);
  c.put(name + ".seen", s.seen);
  c.put(name + ".names", names);  // in their order
}

Sums get(const io::Checkpoint& c, const std::string& name) {
  Sums s{.seen = c.get<int64_t>(name + ".seen")};
  std::istringstream names(c.get<std::string>(name + ".names"));
  for (std::string key; std::getline(names, key);) {
    s.of.emplace_back(key, c.get<double>(concat(name, ".sum.", key)));
    if (const std::string count = concat(name, ".count.", key); c.contains(count))
      s.seen_of.emplace_back(key, c.get<int64_t>(count));
  }
  return s;
}

// All parts of a training's state: the program's, the loader, and what Training counts itself.
std::vector<TrainingState::Part> with(std::vector<TrainingState::Part> parts,
                                      std::initializer_list<TrainingState::Part> more) {
  parts.insert(parts.end(), more);
  return parts;
}

void put(io::Checkpoint& c, const std::vector<EpochResult>& history) {
  c.put("history.size", int64_t(history.size()));
  for (size_t i = 0; i < history.size(); ++i) {
    const std::string name = concat("history.", i);
    c.put(name + ".epoch", history[i].epoch);
    put(c, name + ".train", history[i].train);
    put(c, name + ".test", history[i].test);
    c.put(name + ".seconds", history[i].seconds);
    c.put(name + ".images", history[i].images);
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
                       .seconds = c.get<double>(name + ".seconds"),
                       .images = c.contains(name + ".images") ? c.get<int64_t>(name + ".images") : 0});
  }
  return history;
}

}  // namespace

std::string step_line(const StepReport& r) {
  std::string text =
      format("Train Epoch: %lld [%lld/%lld (%.0f%%)]\tLoss: %.6f", static_cast<long long>(r.epoch),
             static_cast<long long>(r.samples), static_cast<long long>(r.total),
             100.0 * double(r.samples) / double(r.total), r.recent.mean("loss"));
  if (r.all.contains("accuracy")) text += format("\tAccuracy: %.2f%%", 100 * r.all.mean("accuracy"));
  return text + format("\t%.0f images/s", r.images_per_second);
}

std::string test_line(const Sums& all) {
  return format("Test set: Average loss: %.4f, Accuracy: %lld/%lld (%.2f%%)", all.mean("loss"),
                static_cast<long long>(all.sum("accuracy")), static_cast<long long>(all.seen),
                100 * all.mean("accuracy"));
}

Training::Training(std::string program, const RunOptions& run, data::DataLoader& loader,
                   std::vector<TrainingState::Part> parts, TrainingOptions options)
    : program_(std::move(program)),
      run_(run),
      loader_(loader),
      options_(std::move(options)),
      samples_(run.sample_log),
      tested_(epoch()),
      state_(with(std::move(parts), {{"loader", loader_},
                                     {"tested", tested_},
                                     {"tested_steps", tested_steps_},
                                     {"images", images_},
                                     {"steps", steps_},
                                     {"seconds", seconds_},
                                     {"skipped", skipped_}})) {}

namespace {

std::vector<TrainingState::Part> parts_of(Trained& trained) {
  std::vector<TrainingState::Part> parts;
  if (trained.model) parts.emplace_back("model", trained.model->get());
  for (auto& [name, optimizer] : trained.optimizers) parts.emplace_back("optimizer_" + name, optimizer.get());
  if (trained.ema) parts.emplace_back("ema", trained.ema->get());
  parts.insert(parts.end(), trained.more.begin(), trained.more.end());
  return parts;
}

// "step 100  12800 images  loss/d 0.6812  loss/g 0.9320  5210 images/s"
std::string range_line(const StepReport& r, int64_t step, int64_t images, const std::string& unit,
                       int64_t skipped) {
  std::string text = format("step %lld  %lld %s", static_cast<long long>(step),
                            static_cast<long long>(images), unit.c_str());
  for (const auto& [name, sum] : r.recent.of) text += "  " + mean_text(name, r.recent.mean(name));
  if (skipped > 0) text += format("  skipped %lld", static_cast<long long>(skipped));
  return text + format("  %.0f %s/s", r.images_per_second, unit.c_str());
}

}  // namespace

Training::Training(std::string program, Trained trained, const RunOptions& run, TrainingOptions options)
    : Training(std::move(program), run, trained.loader, parts_of(trained), std::move(options)) {
  is_range_ = true;
  if (trained.model) model_ = &trained.model->get();
  if (!model_ && options_.on_not_finite == OnNotFinite::kSkip)
    throw ValueError(program_, "steps are left out (OnNotFinite::kSkip) of a model that is named");
}

// ---- checkpoints ----

std::string Training::checkpoint_path(const std::string& kind) const {
  if (run_.checkpoint_dir.empty()) return "";
  return (fs::path(run_.checkpoint_dir) / (program_ + kind + ".ckpt")).string();
}

// After a restart by the launcher this job's own last checkpoint, if it has written one; else what the user
// names. Rank 0 looks.
std::string Training::find_checkpoint() const {
  const auto find = [&]() -> std::string {
    if (!is_first_rank()) return "";
    const Environment job = environment();
    const std::string last = checkpoint_path();
    const auto is_there = [](const std::string& file) {
      return fs::exists(file) || fs::exists(file + ".previous");
    };
    const bool has_last = !last.empty() && is_there(last);
    // Else it is an earlier training's.
    if (job.restart_count > 0 && has_last &&
        io::inspect_checkpoint(last).checkpoint.get<std::string>("job") == job.job_id)
      return last;
    if (!run_.resume.empty()) return run_.resume;
    return is_range_ && has_last ? last : "";
  };
  return dist::attempt("resume", find)[0];
}

void Training::resume() {
  if (const std::string file = find_checkpoint(); !file.empty()) load(file);
  samples_.begin(loader_.state());
  if (run_.tensorboard.empty() || !is_first_rank()) return;
  // What an earlier run wrote of the steps to come is not shown.
  events_ = std::make_unique<io::EventWriter>(
      run_.tensorboard,
      io::EventWriterOptions{.purge_step = steps_ > 0 ? std::optional(steps_ + 1) : std::nullopt});
}

// Whether a checkpoint is one of this training.
void Training::check(const io::LoadedCheckpoint& from) const {
  const io::Checkpoint& c = from.checkpoint;
  if (c.get<std::string>("program") != program_)
    throw FileError("resume", from.path, ": expected a checkpoint of ", program_, ", given one of ",
                    c.get<std::string>("program"));
  const std::string dataset = loader_.dataset().name();
  if (c.get<std::string>("dataset") != dataset)
    throw ValueError("resume", from.path, " was trained on ", c.get<std::string>("dataset"), ", not on ",
                     dataset);
  for (const auto& [name, value] : options_.fixed)
    if (const std::string saved = c.get<std::string>("fixed." + name); saved != value)
      throw ValueError("resume", from.path, " was trained with ", name, ' ', saved, ", not with ", value);
}

void Training::load(const std::string& file) {
  const io::LoadedCheckpoint loaded =
      state_.load(file, [&](const io::LoadedCheckpoint& from) { check(from); });
  const io::Checkpoint& c = loaded.checkpoint;
  if (!loaded.warning.empty() && is_first_rank())
    std::cerr << program_ << ": " << loaded.warning << std::endl;
  train_ = Tally(get(c, "epoch"));
  history_ = get_history(c);
  print(format("Resuming from %s: epoch %lld, %lld %s done", loaded.path.c_str(),
               static_cast<long long>(epoch()) + 1, static_cast<long long>(loader_.state().samples),
               options_.unit.c_str()));
}

void Training::save(const std::string& file) {
  read_values();
  unlogged_ += train_.reduce();
  if (run_.checkpoint_dir.empty()) return;
  io::Checkpoint c;
  c.put("program", program_);
  c.put("dataset", loader_.dataset().name());
  c.put("job", environment().job_id);
  for (const auto& [name, value] : options_.fixed) c.put("fixed." + name, value);
  put(c, "epoch", train_.total());
  put(c, history_);
  state_.save(file.empty() ? checkpoint_path() : file, c);
}

// ---- epochs ----

bool Training::ended() const {
  const bool by_epochs = run_.images == 0 && run_.iterations == 0;
  return stops_in_epoch() || (by_epochs && epoch() >= run_.epochs);
}

bool Training::next_epoch() {
  if (options_.test && test_due()) end_test(options_.test());
  if (ended()) return false;
  const data::LoaderState at = loader_.state();
  if (at.samples == 0) train_ = Tally(), unlogged_ = {};
  step_time_ = data_time_ = {};
  begin_progress();
  return true;
}

void Training::begin_progress() {
  const data::LoaderState at = loader_.state();
  seconds_before_ = seconds_;
  const bool by_epochs = run_.images == 0 && run_.iterations == 0;
  const std::string title = by_epochs ? format("Epoch %d/%d", int(at.epoch) + 1, int(run_.epochs))
                                      : format("Epoch %d", int(at.epoch) + 1);
  progress_.emplace(ProgressOptions{.title = title,
                                    .total = loader_.dataset().size(),
                                    .done = at.samples,
                                    .unit = options_.unit,
                                    .shown = is_first_rank()});
  step_ended_ = Clock::now();
}

Training::Batches Training::batches() { return Batches(*this); }

void Training::begin_step(const data::Batch& b) {
  data_time_.add(seconds_since(step_ended_));
  images_of_step_ = b.global_size;
  samples_.add(loader_.state(), b.indices);
}

void Training::end_step(const Sums& mine) {
  const data::LoaderState at = loader_.state();
  const data::DataLoader& loader = loader_;
  const int64_t total = loader.dataset().size(), global = loader.global_batch_size();
  const int64_t batch = (at.samples + global - 1) / global;  // from 1
  train_.add(mine);
  images_ += images_of_step_;
  ++steps_;
  seconds_ = seconds_before_ + progress_->seconds();
  step_time_.add(seconds_since(step_ended_));
  dry_run_done_ = run_.dry_run;

  const bool last = at.samples == total || ended();
  const bool log = is_range_ ? steps_ % run_.log_interval == 0 : (batch - 1) % run_.log_interval == 0;
  if (log || last) {
    read_values();
    recent_ = std::exchange(unlogged_, {});
    recent_ += train_.reduce();
  }
  progress_->update(at.samples, figures());
  if (log) {
    write_events("train", recent_);
    const auto optimizers = state_.optimizers();
    for (const auto& [name, optimizer] : optimizers)
      if (events_)
        events_->add_scalar(optimizers.size() > 1 ? "learning_rate/" + name : "learning_rate",
                            optimizer->lr(), steps_);
    if (events_) events_->add_scalar("images_per_second", progress_->units_per_second(), steps_);
  }
  if (log && !Progress::is_bar()) {
    const StepReport report = {.epoch = int64_t(at.epoch) + 1,
                               .epochs = run_.epochs,
                               .batch = batch,
                               .batches = (total + global - 1) / global,
                               .samples = at.samples,
                               .total = total,
                               .recent = recent_,
                               .all = train_.total(),
                               .step = step_time_,
                               .data = data_time_,
                               .images_per_second = progress_->units_per_second()};
    print(is_range_ ? range_line(report, steps_, images_, options_.unit, skipped_)
                    : options_.step_line(report));
  }
  if (last) progress_->finish(figures());
  if (log || last) warn();
  // The end of the epoch saves as well, unless a range of steps saves at its interval.
  if (!last || (is_range_ && run_.checkpoint_interval > 0 && !ended())) {
    const bool stop = stop_.agreed();
    const int64_t count = is_range_ ? steps_ : batch;
    const bool due = run_.checkpoint_interval > 0 && count % run_.checkpoint_interval == 0;
    if (stop || due) save();
    if (stop) throw Interrupted{checkpoint_path()};
  }
  step_ended_ = Clock::now();
}

std::string Training::figures() const {
  std::string text;
  for (const auto& [name, sum] : train_.total().of) {
    text += (text.empty() ? "" : "  ") + mean_text(name, train_.total().mean(name));
  }
  return text;
}

void Training::write_events(const std::string& prefix, const Sums& sums) {
  if (!events_) return;
  for (const auto& [name, sum] : sums.of) events_->add_scalar(prefix + "/" + name, sums.mean(name), steps_);
}

void Training::end_epoch() {
  progress_.reset();
  if (is_range_ && run_.checkpoint_interval > 0 && !ended()) return;  // data sets may be small
  state_.check_synchronized();  // says so, should ranks ever have trained apart
  if (!run_.dry_run) save();
}

// ---- tests ----

bool Training::test_due() const {
  if (ended() && steps_ > tested_steps_) return true;
  if (options_.test_every == 0) return epoch() > tested_;
  const int64_t tested = history_.empty() ? 0 : history_.back().images;
  return images_ / options_.test_every > tested / options_.test_every;
}

bool Training::end_test_step() {
  if (stop_.agreed()) throw Interrupted{checkpoint_path()};
  return run_.dry_run;
}

void Training::end_test(const Sums& given) {
  const Sums all = given.read();
  print(options_.test_line(all));
  write_events("test", all);
  if (events_) events_->flush();
  tested_ = epoch();
  tested_steps_ = steps_;
  history_.push_back(
      {.epoch = tested_, .train = train_.total(), .test = all, .seconds = seconds_, .images = images_});
  if (!options_.keep_best || run_.dry_run) return;
  if (best() == last()) save(checkpoint_path(".best"));
  save();
}

Sums Training::evaluate(nn::Layer& net, data::DataLoader& loader) {
  return evaluate(net, loader, [&](const Tensor& x) { return net(x); });
}

Sums Training::evaluate(nn::Module& model, data::DataLoader& loader,
                        const std::function<Tensor(const Tensor&)>& logits_of) {
  const nn::ModeScope mode(model, false);
  const auto off = no_record();
  Tally tally;
  for (const data::Batch& b : loader) {
    const Tensor logits = logits_of(b.input);
    tally.add(score(cross_entropy(logits, b.target, {.reduction = Reduction::kNone}), logits, b));
    if (end_test_step()) break;
  }
  return tally.reduce();
}

void Training::describe(const nn::Module& net, const data::DataLoader& test_loader) const {
  describe(concat(net), test_loader);
}

void Training::describe(const std::string& net, const data::DataLoader& test_loader) const {
  const data::Dataset &train = loader_.dataset(), &test = test_loader.dataset();
  check_same_on_all_ranks("data sets", concat(train.size(), '+', test.size(), " images of ", train.name()));
  print(concat(train.size(), " training and ", test.size(), " test images of ", train.name(), "; ",
               machine_text(run_.device.value_or(kCPU)), "; seed ", run_.seed, '\n', net));
}

const EpochResult& Training::last() const {
  if (history_.empty()) throw StateError("training", "there was no test yet");
  return history_.back();
}

const EpochResult& Training::best() const {
  last();
  const double sign = options_.lower_is_better ? -1 : 1;
  return *std::ranges::max_element(history_, {}, [&](const EpochResult& e) {
    const double mean = sign * e.test.mean(options_.best_by);
    return e.test.contains(options_.best_by) && std::isfinite(mean)
               ? mean
               : -std::numeric_limits<double>::infinity();
  });
}

double Training::seconds() const { return seconds_since(start_); }

// ---- batches ----

Training::Batches::Iterator::Iterator(Training& training, data::DataLoader::Iterator at)
    : training_(&training), at_(std::move(at)) {
  if (at_ != std::default_sentinel) training_->begin_step(*at_);
}

Training::Batches::Iterator& Training::Batches::Iterator::operator++() {
  if (training_->stops_in_epoch()) return *this;
  ++at_;
  if (at_ != std::default_sentinel) training_->begin_step(*at_);
  return *this;
}

bool Training::Batches::Iterator::operator==(std::default_sentinel_t) const {
  return training_->stops_in_epoch() || at_ == std::default_sentinel;
}

Training::Batches::Iterator Training::Batches::begin() const {
  return {training_, training_.loader_.begin()};
}

// ---- steps ----

Step Training::step_with(const data::Batch& b) {
  const data::DataLoaderOptions& o = loader_.options();
  buffers_.clear();
  if (options_.on_not_finite == OnNotFinite::kSkip)
    for (const Tensor& x : model_->buffers()) buffers_.push_back(raw::clone(x));
  Step s;
  s.training_ = this;
  s.batch_ = &b;
  s.number_ = steps_ + 1;
  s.images_ = images_ + b.global_size;
  s.seed_ = run_.seed;
  s.rank_ = o.rank >= 0 ? o.rank : dist::get_rank();
  s.ranks_ = o.world_size > 0 ? o.world_size : dist::get_world_size();
  return s;
}

void Training::end_step(Step& step) {
  Sums mine = {.seen = step.batch().size()};
  const bool was_skipped = skipped_step_ == steps_;
  for (const auto& [name, tensor] : step.values_) {
    if (internal::is_far(tensor)) {
      unread_.push_back({steps_ + 1, name, internal::kept_number(tensor), was_skipped});
      continue;
    }
    const double value = tensor.item<double>();
    if (was_skipped && !std::isfinite(value)) continue;
    check_finite(steps_ + 1, name, value);
    mine += {.of = {{name, value}}, .seen_of = {{name, 1}}};
  }
  if (unread_.size() >= internal::kMostUnread) read_values();
  if (!was_skipped) skipped_in_row_ = 0;
  end_step(mine);
  if (!options_.test || options_.test_every == 0 || !test_due()) return;
  progress_.reset();  // its time is that of steps
  end_test(options_.test());
  begin_progress();
}

void Training::read_values() {
  const std::vector<Unread> unread = std::exchange(unread_, {});
  std::vector<Tensor> numbers;
  for (const Unread& u : unread) numbers.push_back(u.number);
  const std::vector<double> values = internal::read_numbers(numbers);
  for (size_t i = 0; i < values.size(); ++i) {
    const Unread& u = unread[i];
    if (u.was_skipped && !std::isfinite(values[i])) continue;
    check_finite(u.step, u.name, values[i]);
    train_.add({.of = {{u.name, values[i]}}, .seen_of = {{u.name, 1}}});
  }
}

void Training::refuse(const Step& step, const std::string& network, const std::string& found) {
  read_values();
  std::string mine;
  for (const auto& [name, tensor] : step.values_)
    if (const double value = tensor.item<double>(); !std::isfinite(value))
      mine +=
          concat("; ", name, " is ", std::isnan(value) ? "NaN" : "infinite", " on rank ", dist::get_rank());
  std::string text = concat("step ", steps_ + 1, ", ", network, ": ", found);
  if (dist::get_world_size() == 1)
    text += mine;
  else
    for (const std::string& theirs : dist::all_gather_object(mine)) text += theirs;
  if (!last_values_.empty()) text += "; before";
  for (const auto& [name, value] : last_values_) text += concat(' ', name, " was ", value);
  if (skipped_step_ != steps_) ++skipped_in_row_;
  if (options_.on_not_finite == OnNotFinite::kStop || skipped_in_row_ >= kMostSkippedInARow) {
    const std::string saved = checkpoint_path();
    if (skipped_in_row_ > 1) text += concat("; ", skipped_in_row_, " steps in a row were left out");
    throw ValueError(program_, text, saved.empty() ? "" : concat("; ", saved, " stays as it was before"));
  }
  ++skipped_, skipped_step_ = steps_;
  const std::vector<Tensor> now = model_->buffers();
  for (size_t i = 0; i < now.size(); ++i) raw::copy_(now[i], buffers_[i]);
  print(concat("Left out: ", text));
}

void Training::warn() {
  if (options_.warnings)
    for (const std::string& text : options_.warnings(recent_, steps_ - recent_until_))
      print("Warning: " + text);
  recent_until_ = steps_;
}

void Training::check_finite(int64_t step, const std::string& name, double value) {
  if (std::isfinite(value)) {
    last_values_[name] = value;
    return;
  }
  const auto before = last_values_.find(name);
  const std::string saved = checkpoint_path();
  throw ValueError(program_, "step ", step, ": ", name, " is ", std::isnan(value) ? "NaN" : "infinite",
                   " on rank ", dist::get_rank(),
                   before == last_values_.end() ? "" : concat("; before it was ", before->second),
                   saved.empty() ? "" : concat("; ", saved, " stays as it was before"));
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
  find();
}

void Training::Steps::find() {
  while (!at_ || *at_ == std::default_sentinel) {
    if (at_) training_->end_epoch();
    at_.reset();
    if (!training_->next_epoch()) return;
    at_.emplace(training_->batches().begin());
  }
  step_ = training_->step_with(**at_);
}

Training::Steps& Training::Steps::operator++() {
  training_->end_step(step_);
  ++*at_;
  find();
  return *this;
}

}  // namespace gradus::training
