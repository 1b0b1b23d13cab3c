// train_faults of the program mnist.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tests/distributed/data_parallel/train_faults.h"

namespace gradus::dist {
namespace fs = std::filesystem;
namespace {

// The training: small, with many checkpoints, and a last batch that is smaller.
constexpr int64_t kSamples = 330, kEpochs = 2, kBatchSize = 16, kInterval = 3;
constexpr int kRanks = 2;
constexpr Epochs kTraining = {.samples = kSamples, .per_epoch = kSamples, .end = {kEpochs, 0}};

// How many checkpoints kRanks ranks have written when they are there.
int64_t saves_until(const Position& p) {
  const int64_t global_batch = kRanks * kBatchSize, batches = (kSamples + global_batch - 1) / global_batch;
  return p.epoch * ((batches - 1) / kInterval + 1) + p.samples / global_batch / kInterval;
}

// Files of one training.
struct Place {
  TestFolder folder;
  const std::string checkpoints = folder / "c", log = folder / "log";

  Place() { fs::create_directory(checkpoints); }
  std::string weights() const { return read_whole(folder / "mnist_cnn.safetensors"); }
  History history() const { return read_history(read_whole(log), kTraining); }
};

struct PlaceWatch : Watch {
  explicit PlaceWatch(const Place& p) : Watch(p.checkpoints, "mnist", p.log, kTraining) {}
};

// Starts the program on so many ranks.
std::unique_ptr<Subprocess> start(const FaultsOptions& o, const Place& place, int nproc,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> argv = {"/usr/bin/env", "-C", place.folder.path(), o.executable};
  const auto add = [&](const auto& name, const auto& value) {
    argv.push_back(name);
    argv.push_back(concat(value));
  };
  add("--nproc", nproc);
  add("--train-samples", kSamples);
  add("--test-samples", 40);
  add("--test-batch-size", 10);
  add("--epochs", kEpochs);
  add("--batch-size", kBatchSize);
  add("--threads", 1);
  add("--checkpoint-dir", place.checkpoints);
  add("--checkpoint-interval", kInterval);
  add("--sample-log", place.log);
  argv.push_back("--save-model");
  Subprocess::Variables variables;
  if (o.data.empty())
    variables["XDG_CACHE_HOME"] = place.folder.path();  // no MNIST of this machine's
  else
    add("--data", o.data);
  argv.insert(argv.end(), more.begin(), more.end());
  return std::make_unique<Subprocess>(argv, variables);
}

// Waits for the job's end, and kills on the way. Returns what was wrong.
std::vector<std::string> attend(Subprocess& job, Watch& watch, const std::vector<Kill>& kills, Figures& f) {
  const Attended attended = attend(job, kRanks, watch, kills);
  for (const Moment& m : attended.kills) {
    ++f.kills;
    f.places["while writing"] += m.writing;
    f.places["while replacing"] += m.replacing;
  }
  f.seconds.push_back(job.seconds());
  return attended.wrong;
}

struct Undisturbed {
  std::string weights, checkpoint;
  double seconds = 0, save_seconds = 0;  // in all; of one checkpoint, the longest
};

class Harness {
 public:
  explicit Harness(FaultsOptions o) : options_(std::move(o)) {}

  // Errors: what is wrong with the program itself.
  void run_undisturbed() {
    Place place;
    PlaceWatch watch(place);
    Figures f;
    const auto p = start(options_, place, kRanks, {"--max-restarts", "1"});
    std::vector<std::string> wrong = attend(*p, watch, {}, f);
    if (p->wait() != 0) wrong.push_back(concat("status ", p->wait(), ": ", p->out(), p->err()));
    if (watch.done != saves_until(kTraining.end))
      wrong.push_back(concat("wrote ", watch.done, " checkpoints; expected ", saves_until(kTraining.end)));
    for (const std::string& w : check_each_once(place.history(), kTraining)) wrong.push_back(w);
    const std::vector<double>& saves = watch.save_seconds;
    reference_ = {place.weights(), read_whole(place.checkpoints + "/mnist.ckpt"), p->seconds(),
                  saves.empty() ? 0 : *std::max_element(saves.begin(), saves.end())};
    if (reference_.weights.empty()) wrong.emplace_back("it wrote no weights");
    if (!wrong.empty()) throw StateError("train_faults", "an undisturbed run: ", wrong[0]);
  }
  const Undisturbed& undisturbed() const { return reference_; }

  // Kills that restarts make good.
  std::vector<std::string> run_killed(const std::string& kind, Random random, Figures& f) {
    std::vector<Kill> kills = {kill_of(kind, random, 0.9)};
    if (one_of(random, 0, 1)) kills.push_back(kill_of(kind, random, 0.5));
    Place place;
    // Of another training: nobody asked to go on from it.
    write_file(place.checkpoints + "/mnist.ckpt", reference_.checkpoint);
    PlaceWatch watch(place);
    const auto p = start(options_, place, kRanks, {"--max-restarts", "9"});
    std::vector<std::string> wrong = attend(*p, watch, kills, f);
    f.restarts += count_of("all ranks start again", p->err());
    if (p->wait() != 0) wrong.push_back(concat("its status is ", p->wait()));
    // One that is written for the second time was not gone on from.
    if (watch.done != saves_until(kTraining.end))
      wrong.push_back(concat("it wrote ", watch.done, " checkpoints; expected ", saves_until(kTraining.end)));
    for (const std::string& w : check_each_once(place.history(), kTraining)) wrong.push_back(w);
    if (place.weights() != reference_.weights)
      wrong.emplace_back("its weights are not those of an undisturbed run");
    if (!wrong.empty()) wrong.push_back(concat("the job said: ", p->out(), p->err()));
    return wrong;
  }

  // A kill that ends the job, which another number of ranks takes up.
  std::vector<std::string> run_resumed(int nproc, Random random, Figures& f) {
    Kill kill{.event = &Watch::done,
              .count = one_of(random, 1, 5),
              .delay = uniform(random, 0, 0.1 * reference_.seconds),
              .rank = one_of(random, 0, kRanks - 1)};
    Place place;
    std::string said;
    std::vector<std::string> wrong;
    int saves = 0;
    {
      PlaceWatch watch(place);
      const auto p = start(options_, place, kRanks);
      const int kills = f.kills;
      wrong = attend(*p, watch, {kill}, f);
      const bool killed = f.kills > kills;  // else the job was faster
      if ((p->wait() != 0) != killed)
        wrong.push_back(
            concat("the job's status is ", p->wait(), ", with ", f.kills - kills, " ranks killed"));
      saves = watch.done;
      said = p->out() + p->err();
      if (killed && !count_of(concat("rank ", kill.rank, " was killed by signal 9 (SIGKILL)"), said))
        wrong.emplace_back("the job does not say which rank was killed");
    }
    PlaceWatch watch(place);
    const auto p = start(options_, place, nproc, {"--resume", place.checkpoints + "/mnist.ckpt"});
    for (const std::string& w : attend(*p, watch, {}, f)) wrong.push_back(w);
    if (p->wait() != 0) wrong.push_back(concat("the status of the resumed job is ", p->wait()));
    const History h = place.history();
    ++f.restarts;
    if (h.begins.size() != 2 || saves_until(h.begins.back()) != saves)
      wrong.push_back(concat("it was not resumed from its checkpoint ", saves));
    for (const std::string& w : check_each_once(h, kTraining)) wrong.push_back(w);
    if (!wrong.empty()) wrong.push_back(concat("the jobs said: ", said, p->out(), p->err()));
    return wrong;
  }

 private:
  Kill kill_of(const std::string& kind, Random& random, double part) const {
    if (kind == "anywhere")
      return {.delay = uniform(random, 0, part * reference_.seconds), .rank = one_of(random, 0, kRanks - 1)};
    const int64_t saves = saves_until(kTraining.end);
    const int count = one_of(random, 1, std::max(1, int(part * double(saves) / 2)));
    // Mostly rank 0, which writes.
    const int rank = one_of(random, 0, 3) ? 0 : kRanks - 1;
    if (kind == "writing")
      return {.event = &Watch::begun,
              .count = count,
              .delay = uniform(random, 0, reference_.save_seconds),
              .rank = rank,
              .hits = &Moment::writing};
    return {.event = &Watch::replacing, .count = count, .rank = rank, .hits = &Moment::replacing};
  }

  const FaultsOptions options_;
  Undisturbed reference_;
};

}  // namespace

int run_mnist_faults(const FaultsOptions& options) {
  Harness harness(options);
  harness.run_undisturbed();
  std::printf("undisturbed: %.2f s, a checkpoint takes up to %.0f ms\n\n", harness.undisturbed().seconds,
              1e3 * harness.undisturbed().save_seconds);
  Table table({"while writing", "while replacing"});
  const std::vector<std::string> kinds = {"anywhere", "writing", "replacing"};
  const std::vector<int> ranks = {1, 3, 4};
  using Faults = std::optional<std::vector<std::string>>;
  for (size_t k = 0; k < kinds.size(); ++k)
    table.repeat(kinds[k], options, [&](int i, Random random, Figures& f) -> Faults {
      if (size_t(i) % kinds.size() != k) return {};
      return harness.run_killed(kinds[k], random, f);
    });
  for (size_t k = 0; k < ranks.size(); ++k)
    table.repeat(concat("for good, then on ", ranks[k], " ranks"), options,
                 [&](int i, Random random, Figures& f) -> Faults {
                   if (size_t(i) % ranks.size() != k) return {};
                   return harness.run_resumed(ranks[k], random, f);
                 });
  return table.end();
}

}  // namespace gradus::dist
