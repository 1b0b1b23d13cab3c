// A PGGAN, with 2 and with 4 ranks. Killed at moments of every kind, it must
// write what an undisturbed run writes, bit by bit: each checkpoint with networks, average, optimizers and
// schedule, the exported weights, and the grids of samples. Another number of ranks must go through the same
// images, batches, sizes and fades.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "gradus/data/sets/digits.h"
#include "gradus/data/transforms/tensor.h"
#include "gradus/io/checkpoint.h"
#include "gradus/io/save_image.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/tensor.h"
#include "gradus/tests/distributed/data_parallel/train_faults.h"
#include "gradus/tests/distributed/data_parallel/train_faults_kills.h"

namespace gradus::dist {
namespace fs = std::filesystem;
namespace {

// ---- the table of results ----

// What happened to some jobs.
struct Figures {
  int kills = 0, restarts = 0;
  std::map<std::string, int> places;  // the kills, by what they fell into
  std::vector<double> seconds;        // of each job
};

// A line for each kind of job, with the kills that fell into each of these places.
class Table {
 public:
  // A repetition: returns what was wrong; none when it is not one of this kind.
  using Repetition = std::function<std::optional<std::vector<std::string>>(int, Random, Figures&)>;

  explicit Table(std::vector<std::string> places);
  void repeat(const std::string& name, const FaultsOptions& options, const Repetition& once);
  // Prints the sums of all lines so far.
  void print_sums() const;
  // Counts it as wrong when no kill fell into one of the places.
  void expect_all_places();
  // Prints whether all is right. Returns a status.
  int end() const;

 private:
  void print(const std::string& name, int runs, int wrong, const Figures& f) const;

  const std::vector<std::string> places_;
  Figures all_;
  int runs_ = 0, wrong_ = 0;  // jobs
};

Table::Table(std::vector<std::string> places) : places_(std::move(places)) {
  std::printf("%-34s %5s %6s %6s", "killed", "runs", "wrong", "kills");
  for (const std::string& place : places_) std::printf("  %*s", int(place.size()), place.c_str());
  std::printf(" %9s %10s\n", "restarts", "median, s");
}

void Table::repeat(const std::string& name, const FaultsOptions& options, const Repetition& once) {
  Figures f;
  int runs = 0, wrong = 0;
  for (int i = 0; i < options.repetitions; ++i) {
    const uint64_t seed = options.seed + uint64_t(i);
    const auto faults = once(i, Random(seed), f);
    if (!faults) continue;
    ++runs;
    wrong += !faults->empty();
    if (!faults->empty())
      std::fprintf(stderr, "%s, --seed %llu:\n", name.c_str(), static_cast<unsigned long long>(seed));
    for (const std::string& w : *faults) std::fprintf(stderr, "  %s\n", w.c_str());
  }
  print(name, runs, wrong, f);
  runs_ += runs, wrong_ += wrong;
  all_.kills += f.kills, all_.restarts += f.restarts;
  for (const auto& [place, count] : f.places) all_.places[place] += count;
  all_.seconds.insert(all_.seconds.end(), f.seconds.begin(), f.seconds.end());
}

void Table::print_sums() const { print("all", runs_, wrong_, all_); }

void Table::expect_all_places() {
  for (const std::string& place : places_) {
    if (all_.places[place] > 0) continue;
    std::fprintf(stderr, "no rank was killed %s\n", place.c_str());
    ++wrong_;
  }
}

void Table::print(const std::string& name, int runs, int wrong, const Figures& f) const {
  std::printf("%-34s %5d %6d %6d", name.c_str(), runs, wrong, f.kills);
  for (const std::string& place : places_)
    std::printf("  %*d", int(place.size()), f.places.contains(place) ? f.places.at(place) : 0);
  std::printf(" %9d %10.2f\n", f.restarts, median(f.seconds));
  std::fflush(stdout);
}

int Table::end() const {
  std::printf("%s\n", wrong_ ? "there were wrong runs" : "all right");
  return wrong_ ? 1 : 0;
}

// ---- the training ----

struct Phase {
  int64_t size, images, batch;
};
// Sizes 8 and 16 begin with the steps 10 and 26, the latter with half of the batch. Their fades take 7 and 13
// steps. One growth comes right after a checkpoint, the other one does not.
const std::vector<Phase> kPlan = {{4, 72, 8}, {8, 128, 8}, {16, 60, 4}};
constexpr int64_t kSteps = 40, kImages = 260, kInterval = 3;
constexpr int64_t kFade = 52, kSampleEvery = 24;
constexpr int64_t kLargestBatch = 8;  // divides the data, so that all epochs use as many images
constexpr int64_t kDigits = 72;       // that are drawn without --data
constexpr int kEnough = 20;           // repetitions that must have kills of all kinds

// The size of the images and the share of the newest blocks, of a step.
struct Scale {
  int64_t size = 0;
  double fade = 1;
  bool operator==(const Scale&) const = default;
};

// Returns the phase of the step that begins after so many images, and leaves those of this phase.
size_t phase_after(int64_t& images) {
  size_t i = 0;
  while (i + 1 < kPlan.size() && images >= kPlan[i].images) images -= kPlan[i++].images;
  return i;
}
// Returns its scale.
Scale scale_after(int64_t images) {
  const size_t i = phase_after(images);
  return {kPlan[i].size, i > 0 && images < kFade ? double(images) / double(kFade) : 1};
}

// Returns the images of so many steps, and the reverse.
int64_t images_of(int64_t steps) {
  int64_t all = 0;
  for (; steps > 0; --steps) {
    int64_t before = all;
    all += kPlan[phase_after(before)].batch;
  }
  return all;
}
int64_t steps_of(int64_t images) {
  int64_t steps = 0;
  while (images_of(steps) < images) ++steps;
  return steps;
}

bool grows(int64_t step) {
  return step > 0 && scale_after(images_of(step)).size != scale_after(images_of(step - 1)).size;
}
bool fades(int64_t step) {
  const double fade = scale_after(images_of(step)).fade;
  return fade > 0 && fade < 1;
}

// Returns the steps, from 0, of which that is true.
std::vector<int64_t> steps_that(bool (*is)(int64_t)) {
  std::vector<int64_t> steps;
  for (int64_t i = 0; i < kSteps; ++i)
    if (is(i)) steps.push_back(i);
  return steps;
}

// How many checkpoints a training has written after so many steps.
int64_t saves_after(int64_t steps) {
  return steps / kInterval + (steps == kSteps && kSteps % kInterval != 0);
}

// ---- what it writes ----

using Texts = std::map<std::string, std::string>;

// Returns all values of a checkpoint, as bytes, without what is another one in every job.
Texts values_of(const io::Checkpoint& c) {
  Texts values;
  c.each([&](const std::string& name, const auto& value) {
    if (name == "seconds" || name == "job") return;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, Tensor>)
      values[name] = concat(describe(value), ' ') +
                     std::string(static_cast<const char*>(value.raw_ptr()), size_t(value.nbytes()));
    else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, double>)
      values[name] = std::string(reinterpret_cast<const char*>(&value), sizeof value);
    else
      values[name] = concat(value);
  });
  return values;
}

// Adds which of these differ, or are only on one side.
void compare(const std::string& what, const Texts& is, const Texts& expected,
             std::vector<std::string>& wrong) {
  std::set<std::string> names, differ;
  for (const auto& [name, value] : is) names.insert(name);
  for (const auto& [name, value] : expected) names.insert(name);
  for (const std::string& name : names)
    if (!is.contains(name) || !expected.contains(name) || is.at(name) != expected.at(name))
      differ.insert(name);
  if (differ.empty()) return;
  std::string some;
  for (const std::string& name : differ)
    if (some.size() < 200)
      some += concat(some.empty() ? "" : ", ", name,
                     !is.contains(name)         ? " (missing)"
                     : !expected.contains(name) ? " (new)"
                                                : "");
  wrong.push_back(concat(what, ": ", differ.size(), " of ", names.size(), " differ: ", some));
}

// Returns the distance of two states of training, relative to the second one's norm.
double distance(const io::Checkpoint& a, const io::Checkpoint& b, const std::string& part) {
  double difference = 0, norm = 0;
  const NamedTensors of_a = a.tensors(part), of_b = b.tensors(part);
  if (of_a.size() != of_b.size()) return INFINITY;
  for (size_t i = 0; i < of_b.size(); ++i) {
    const std::vector<float> x = of_a[i].second.to_vector<float>(), y = of_b[i].second.to_vector<float>();
    for (size_t j = 0; j < y.size(); ++j) {
      difference += std::pow(double(x.at(j)) - double(y[j]), 2);
      norm += std::pow(double(y[j]), 2);
    }
  }
  return std::sqrt(difference / norm);
}

// Files of one training.
class Place {
 public:
  Place() {
    fs::create_directory(checkpoints);
    fs::create_directory(seen_);
  }
  TestFolder folder;
  const std::string checkpoints = folder / "c", log = folder / "log";

  // Keeps the checkpoint that is there now.
  void keep_checkpoint() {
    std::error_code error;  // the next one may be coming
    fs::create_hard_link(checkpoints + "/gan.ckpt", concat(seen_, '/', kept_++, ".ckpt"), error);
  }
  // Returns those that were kept, by their images, and adds what is wrong with them.
  std::map<int64_t, io::Checkpoint> kept(std::vector<std::string>& wrong) const {
    std::map<int64_t, io::Checkpoint> found;
    for (const auto& entry : fs::directory_iterator(seen_)) try {
        io::LoadedCheckpoint loaded = io::load_checkpoint(entry.path());
        if (!loaded.warning.empty()) wrong.push_back(loaded.warning);
        found[loaded.checkpoint.get<int64_t>("images")] = loaded.checkpoint;
      } catch (const Error& e) {
        wrong.push_back(concat("a checkpoint: ", e.what()));
      }
    return found;
  }
  std::string weights() const { return read_whole(folder / "w.safetensors"); }
  Texts grids() const {
    Texts files;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(checkpoints + "/samples", error))
      if (entry.path().extension() == ".png") files[entry.path().filename()] = read_whole(entry.path());
    return files;
  }
  // Returns the summary's figures that do not depend on time.
  Texts summary() const {
    const auto json = nlohmann::json::parse(read_whole(folder / "s.json"), nullptr, false);
    Texts figures;
    for (const char* key :
         {"train_samples", "epochs", "steps", "images", "scale", "fade", "d_steps", "g_steps"})
      if (json.is_object() && json.contains(key)) figures[key] = json.at(key).dump();
    return figures;
  }
  // Returns the temporary files that are left.
  Texts left() const {
    Texts files;
    for (const auto& entry : fs::recursive_directory_iterator(checkpoints))
      if (entry.path().extension() == ".tmp") files[entry.path()] = "";
    return files;
  }

 private:
  const std::string seen_ = folder / "seen";
  int kept_ = 0;
};

struct Undisturbed {
  std::map<int64_t, io::Checkpoint> checkpoints;
  std::string weights;
  Texts grids, summary;
  History history;
  double seconds = 0, save_seconds = 0, step_seconds = 0;  // in all; of a checkpoint and a step, the median
};

// ---- jobs ----

const std::vector<std::string> kPlaces = {"at a checkpoint", "at a growth", "in a fade", "elsewhere"};

class Harness {
 public:
  explicit Harness(FaultsOptions o) : options_(std::move(o)) {
    if (options_.data.empty()) draw_digits();
  }

  // Finds out what the data are.
  void run_first() {
    Place place;
    const auto p = start(place, 1);
    if (p->wait() != 0) throw StateError("train_faults", "the first run: ", p->err());
    const int64_t samples = std::stoll(place.summary().at("train_samples"));
    if (samples % kLargestBatch != 0)
      throw ValueError("train_faults", "expected a multiple of ", kLargestBatch, " images, got ", samples);
    epochs_ = {.samples = samples, .per_epoch = samples};
    epochs_.end = epochs_.after(kImages);
  }

  // Errors: what is wrong with the program itself.
  void run_undisturbed(int nproc) {
    Place place;
    Watch watch(place.checkpoints, "gan", place.log, epochs_);
    watch.when_done = [&] { place.keep_checkpoint(); };
    Figures f;
    const auto p = start(place, nproc, {"--max-restarts", "1"});
    std::vector<std::string> wrong = attend(*p, nproc, watch, {}, place, f);
    if (p->wait() != 0) wrong.push_back(concat("status ", p->wait(), ": ", p->err()));
    const Undisturbed u = {.checkpoints = place.kept(wrong),
                           .weights = place.weights(),
                           .grids = place.grids(),
                           .summary = place.summary(),
                           .history = read_history(read_whole(place.log), epochs_),
                           .seconds = p->seconds(),
                           .save_seconds = median(watch.save_seconds),
                           .step_seconds = median(watch.step_seconds)};
    check_whole(u, wrong);
    if (watch.done != saves_after(kSteps))
      wrong.push_back(concat("wrote ", watch.done, " checkpoints; expected ", saves_after(kSteps)));
    if (!wrong.empty()) throw StateError("train_faults", "an undisturbed run: ", wrong[0]);
    undisturbed_[nproc] = u;
  }
  const Undisturbed& undisturbed(int nproc) const { return undisturbed_.at(nproc); }

  // Kills that restarts make good.
  std::vector<std::string> run_killed(const std::string& kind, int nproc, Random random, Figures& f) {
    const Undisturbed& u = undisturbed_.at(nproc);
    std::vector<Kill> kills = {kill_of(kind, nproc, random, 0.9)};
    if (one_of(random, 0, 1)) kills.push_back(kill_of(kind, nproc, random, 0.5));
    Place place;
    Watch watch(place.checkpoints, "gan", place.log, epochs_);
    watch.when_done = [&] { place.keep_checkpoint(); };
    const auto p = start(place, nproc, {"--max-restarts", "9"});
    std::vector<std::string> wrong = attend(*p, nproc, watch, kills, place, f);
    f.restarts += count_of("all ranks start again", p->err());
    if (p->wait() != 0) wrong.push_back(concat("its status is ", p->wait()));
    check_end(place, watch.done, u, wrong);
    const auto checkpoints = place.kept(wrong);
    if (!checkpoints.contains(kImages)) wrong.emplace_back("it has no last checkpoint");
    for (const auto& [images, c] : checkpoints)
      if (u.checkpoints.contains(images))
        compare(concat("the checkpoint after ", images, " images"), values_of(c),
                values_of(u.checkpoints.at(images)), wrong);
    if (place.weights() != u.weights) wrong.emplace_back("the exported weights differ");
    compare("grids", place.grids(), u.grids, wrong);
    if (!wrong.empty()) wrong.push_back(concat("the job said: ", p->out(), p->err()));
    return wrong;
  }

  // A kill that ends a job, which another number of ranks takes up.
  std::vector<std::string> run_resumed(int before, int after, Random random, Figures& f) {
    const Kill kill =
        kill_of(kinds()[size_t(one_of(random, 0, int(kinds().size()) - 1))], before, random, 0.9);
    Place place;
    std::vector<std::string> wrong;
    std::string said;
    int saves = 0;
    {
      Watch watch(place.checkpoints, "gan", place.log, epochs_);
      watch.when_done = [&] { place.keep_checkpoint(); };
      const auto p = start(place, before);
      const int kills = f.kills;
      wrong = attend(*p, before, watch, {kill}, place, f);
      if ((p->wait() != 0) != (f.kills > kills))  // else the job was faster
        wrong.push_back(
            concat("the job's status is ", p->wait(), ", with ", f.kills - kills, " ranks killed"));
      saves = watch.done;
      said = p->out() + p->err();
    }
    const bool begun = !read_whole(place.log).empty();
    Watch watch(place.checkpoints, "gan", place.log, epochs_);
    watch.when_done = [&] { place.keep_checkpoint(); };
    const auto p = start(place, after);
    for (const std::string& w : attend(*p, after, watch, {}, place, f)) wrong.push_back(w);
    ++f.restarts;
    if (p->wait() != 0) wrong.push_back(concat("the status of the resumed job is ", p->wait()));
    const Undisturbed& u = undisturbed_.at(before);
    const History h = check_end(place, saves + watch.done, u, wrong);
    if (h.begins.size() != (begun ? 2 : 1) ||
        h.begins.back() != epochs_.after(images_of(std::min(saves * kInterval, kSteps))))
      wrong.push_back(concat("it was not resumed from its checkpoint ", saves));
    const auto checkpoints = place.kept(wrong);
    check_schedule(checkpoints, wrong);
    Texts names, expected;
    for (const auto& [name, bytes] : place.grids()) names[name] = "";
    for (const auto& [name, bytes] : u.grids) expected[name] = "";
    compare("names of grids", names, expected, wrong);
    if (checkpoints.contains(kImages))
      check_near(checkpoints.at(kImages), u.checkpoints.at(kImages), wrong);
    else
      wrong.emplace_back("it has no last checkpoint");
    if (!wrong.empty()) wrong.push_back(concat("the jobs said: ", said, p->out(), p->err()));
    return wrong;
  }

  // How far weights may be from those of an undisturbed run, relative to their norm, when the number of ranks
  // has changed: half of what the last step did. Gradients are then rounded otherwise. That moves weights by
  // less than 1e-6 of their norm, unless it turns the sign of an update, or takes a leaky ReLU's input to the
  // other side of zero. Then all weights depart, by 2e-4 as measured. A training that lost a step or a part
  // of its state would be a step's update away, some 1e-3, or more.
  double tolerance(const std::string& part) const {
    const auto& checkpoints = undisturbed_.at(1).checkpoints;
    static_assert(kSteps % kInterval == 1);  // so that the last two checkpoints are one step apart
    return distance(std::prev(checkpoints.end(), 2)->second, checkpoints.at(kImages), part) / 2;
  }
  double farthest() const { return farthest_; }

  static const std::vector<std::string>& kinds() {
    static const std::vector<std::string> all = {"anywhere", "writing", "replacing", "growth", "fade"};
    return all;
  }

 private:
  void draw_digits() {
    const data::GeneratedDigits digits({.size = kDigits, .transform = data::ToTensor()});
    options_.data = images_ / "digits";
    fs::create_directory(options_.data);
    for (int64_t i = 0; i < kDigits; ++i)
      io::save_image(concat(options_.data, '/', 100 + i, ".png"), digits.get(i).input);
  }

  std::unique_ptr<Subprocess> start(const Place& place, int nproc,
                                    const std::vector<std::string>& more = {}) {
    std::vector<std::string> argv = {"/usr/bin/env", "-C", place.folder.path(), options_.executable};
    const auto add = [&](const auto& name, const auto& value) {
      argv.push_back(name);
      argv.push_back(concat(value));
    };
    std::string plan;
    for (const auto& [size, images, batch] : kPlan)
      plan += concat(plan.empty() ? "" : ",", size, ':', images, ':', batch);
    add("--nproc", nproc);
    add("--threads", 1);
    add("--model", "pggan");
    add("--data", options_.data);
    add("--size", kPlan.back().size);
    add("--width", 8);
    add("--images", kImages);
    add("--images-per-scale", plan);
    add("--fade", kFade);
    add("--ema-images", 100);
    add("--sample-every", kSampleEvery);
    add("--checkpoint-dir", "c");
    add("--checkpoint-interval", kInterval);
    add("--sample-log", "log");
    add("--export", "w.safetensors");
    add("--summary", "s.json");
    argv.insert(argv.end(), more.begin(), more.end());
    return std::make_unique<Subprocess>(argv);
  }

  // Attends a job, and counts what its kills fell into.
  std::vector<std::string> attend(Subprocess& job, int nproc, Watch& watch, const std::vector<Kill>& kills,
                                  const Place& place, Figures& f) const {
    const Attended attended = dist::attend(job, nproc, watch, kills);
    const std::string log = read_whole(place.log);
    size_t before = 0;
    for (const Moment& m : attended.kills) {
      const std::optional<Position> end = step_at(log, m.log_size, before, epochs_);
      const int64_t step = end ? steps_of(epochs_.used(*end)) - 1 : -1;
      ++f.kills;
      ++f.places[kPlaces[m.writing || m.replacing ? 0 : grows(step) ? 1 : step >= 0 && fades(step) ? 2 : 3]];
      before = m.log_size;
    }
    f.seconds.push_back(job.seconds());
    return attended.wrong;
  }

  Kill kill_of(const std::string& kind, int nproc, Random& random, double part) const {
    const Undisturbed& u = undisturbed_.at(nproc);
    const int any = one_of(random, 0, nproc - 1);
    const auto in_step = [&](int64_t step) -> Kill {
      return {.step = epochs_.after(images_of(step + 1)),
              .delay = uniform(random, 0, u.step_seconds),
              .rank = any};
    };
    // Steps find a moment on a machine of any speed. Sometimes it is before the first one.
    if (kind == "anywhere")
      return one_of(random, 0, 4) ? in_step(one_of(random, 0, int(part * kSteps)))
                                  : Kill{.delay = uniform(random, 0, u.step_seconds), .rank = any};
    if (kind == "growth" || kind == "fade") {
      const std::vector<int64_t> steps = steps_that(kind == "growth" ? grows : fades);
      return in_step(steps[size_t(one_of(random, 0, int(steps.size()) - 1))]);
    }
    const int count = one_of(random, 1, std::max(1, int(part * double(saves_after(kSteps)) / 2)));
    const int rank = one_of(random, 0, 3) ? 0 : any;  // mostly the one that writes
    if (kind == "writing")
      return {.event = &Watch::begun,
              .count = count,
              .delay = uniform(random, 0, u.save_seconds),
              .rank = rank,
              .hits = &Moment::writing};
    return {.event = &Watch::replacing, .count = count, .rank = rank, .hits = &Moment::replacing};
  }

  // What is wrong with an undisturbed run by itself.
  void check_whole(const Undisturbed& u, std::vector<std::string>& wrong) const {
    for (const std::string& w : check_each_once(u.history, epochs_)) wrong.push_back(w);
    if (u.weights.empty()) wrong.emplace_back("it exported no weights");
    if (int64_t(u.grids.size()) != 2 * (kImages / kSampleEvery))
      wrong.push_back(concat("it wrote ", u.grids.size(), " grids"));
    for (int64_t steps = 1; steps <= kSteps; ++steps)
      if (saves_after(steps) > saves_after(steps - 1) && !u.checkpoints.contains(images_of(steps)))
        wrong.push_back(concat("there was no checkpoint after ", steps, " steps"));
    check_schedule(u.checkpoints, wrong);
    const Scale last = scale_after(kImages);
    compare("the summary", u.summary,
            {{"train_samples", concat(epochs_.samples)},
             {"epochs", concat(epochs_.end.epoch)},
             {"steps", concat(kSteps)},
             {"images", concat(kImages)},
             {"scale", concat(last.size)},
             {"fade", concat(last.fade)},
             {"d_steps", concat(kSteps)},
             {"g_steps", concat(kSteps)}},
            wrong);
  }

  // Each checkpoint has the size and the fade of the step before it.
  void check_schedule(const std::map<int64_t, io::Checkpoint>& checkpoints,
                      std::vector<std::string>& wrong) const {
    for (const auto& [images, c] : checkpoints) {
      const Scale scale = {c.get<int64_t>("scale_size"), c.get<double>("scale_fade")};
      const Scale expected = scale_after(images_of(steps_of(images) - 1));
      if (scale != expected || images_of(c.get<int64_t>("steps")) != images)
        wrong.push_back(concat("the checkpoint after ", images, " images: step ", c.get<int64_t>("steps"),
                               ", size ", scale.size, ", fade ", scale.fade, "; expected size ",
                               expected.size, ", fade ", expected.fade));
    }
  }

  // What is wrong at the end with the images, steps and files of any job that was disturbed.
  History check_end(const Place& place, int64_t saves, const Undisturbed& u,
                    std::vector<std::string>& wrong) const {
    // One that is written for the second time was not gone on from.
    if (saves != saves_after(kSteps))
      wrong.push_back(concat("it wrote ", saves, " checkpoints; expected ", saves_after(kSteps)));
    History h = read_history(read_whole(place.log), epochs_);
    for (const std::string& w : check_each_once(h, epochs_)) wrong.push_back(w);
    const auto sorted = [](std::vector<int64_t> x) {
      std::ranges::sort(x);
      return x;
    };
    for (const auto& [end, samples] : u.history.steps)
      if (!h.steps.contains(end) || sorted(h.steps.at(end)) != sorted(samples)) {
        wrong.push_back(concat("the step to ", end.epoch, ':', end.samples, " has other images"));
        break;
      }
    compare("the summary", place.summary(), u.summary, wrong);
    compare("temporary files", place.left(), {}, wrong);
    return h;
  }

  // Both have trained alike but for the order in which gradients are summed.
  void check_near(const io::Checkpoint& c, const io::Checkpoint& expected, std::vector<std::string>& wrong) {
    for (const char* part : {"model", "ema"}) {
      const double d = distance(c, expected, part);
      farthest_ = std::max(farthest_, d);
      if (!(d <= tolerance(part)))
        wrong.push_back(concat("its ", part, " is ", d, " away, allowed is ", tolerance(part)));
    }
  }

  FaultsOptions options_;
  TestFolder images_;
  Epochs epochs_;
  std::map<int, Undisturbed> undisturbed_;
  double farthest_ = 0;
};

}  // namespace

int run_gan_faults(const FaultsOptions& options) {
  Harness harness(options);
  harness.run_first();
  for (const int nproc : {1, 2, 4}) {
    harness.run_undisturbed(nproc);
    const Undisturbed& u = harness.undisturbed(nproc);
    std::printf("undisturbed, %d ranks: %.2f s, a step takes %.0f ms, a checkpoint %.1f ms\n", nproc,
                u.seconds, 1e3 * u.step_seconds, 1e3 * u.save_seconds);
  }
  std::printf("\n");
  Table table(kPlaces);
  using Faults = std::optional<std::vector<std::string>>;
  const std::vector<std::string>& kinds = Harness::kinds();
  for (size_t k = 0; k < kinds.size(); ++k)
    for (const int nproc : {2, 4})
      table.repeat(concat(kinds[k], ", ", nproc, " ranks"), options,
                   [&](int i, Random random, Figures& f) -> Faults {
                     if (size_t(i) % kinds.size() != k || (i % 2 ? 4 : 2) != nproc) return {};
                     return harness.run_killed(kinds[k], nproc, random, f);
                   });
  table.print_sums();
  if (options.repetitions >= kEnough) table.expect_all_places();
  const std::vector<std::pair<int, int>> changes = {{2, 4}, {4, 2}, {2, 1}};
  for (size_t k = 0; k < changes.size(); ++k) {
    const auto [before, after] = changes[k];
    table.repeat(concat("for good on ", before, " ranks, then ", after), options,
                 [&](int i, Random random, Figures& f) -> Faults {
                   if (size_t(i) % changes.size() != k) return {};
                   return harness.run_resumed(before, after, random, f);
                 });
  }
  std::printf("weights on another number of ranks: at most %.2g of their norm away, allowed %.2g\n",
              harness.farthest(), harness.tolerance("model"));
  return table.end();
}

}  // namespace gradus::dist
