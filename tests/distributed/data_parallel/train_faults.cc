// Kills ranks of a real training, many times over: at any moment, and at the moments in which a checkpoint is
// written or replaces the one before. The job must recover by itself from its last checkpoint and end well.
// Every sample counts once in its epoch. The weights equal those of an undisturbed run, bit by bit. Then a
// job that is killed for good continues with another number of ranks.
//
//   ./run train_faults                            50 repetitions, on digits that the program draws
//   ./run train_faults --data DIR --seed 7        MNIST
#include <limits.h>
#include <poll.h>
#include <sys/inotify.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tests/distributed/subprocess.h"

using namespace gradus;
using namespace gradus::dist;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

// The training: small, with many checkpoints, and a last batch that is smaller.
constexpr int64_t kSamples = 330, kEpochs = 2, kBatchSize = 16, kInterval = 3;
constexpr int kRanks = 2;
constexpr double kLimit = 120;  // seconds that any job may take

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

double uniform(Random& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

int one_of(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// ---- which samples were used ----

// A place in the training; at the end of an epoch it is the beginning of the next one.
struct Position {
  int64_t epoch = 0, samples = 0;
  auto operator<=>(const Position&) const = default;
};

Position position(int64_t epoch, int64_t samples) {
  return samples == kSamples ? Position{epoch + 1, 0} : Position{epoch, samples};
}

// How many checkpoints kRanks ranks have written when they are there.
int64_t saves_until(const Position& p) {
  const int64_t global_batch = kRanks * kBatchSize, batches = (kSamples + global_batch - 1) / global_batch;
  return p.epoch * ((batches - 1) / kInterval + 1) + p.samples / global_batch / kInterval;
}

// What the program's sample log says (gradus/train/internal/sample_log.h).
struct History {
  std::vector<Position> begins;                    // of every run
  std::map<Position, std::vector<int64_t>> steps;  // by their ends; those that were lost are gone
};

History read_history(const std::string& file) {
  History h;
  std::istringstream lines(read_whole(file));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    const bool begin = line.starts_with("from ");
    if (begin) words.ignore(5);
    int64_t epoch = 0, samples = 0;
    words >> epoch >> samples;
    const Position at = position(epoch, samples);
    if (begin) {
      h.begins.push_back(at);
      h.steps.erase(h.steps.upper_bound(at), h.steps.end());
    } else {
      std::vector<int64_t>& used = h.steps[at];
      used.clear();
      for (int64_t index; words >> index;) used.push_back(index);
    }
  }
  return h;
}

// What is wrong with a history that should have every sample once in every epoch.
std::vector<std::string> check_each_once(const History& h) {
  std::vector<std::string> wrong;
  std::vector<std::map<int64_t, int>> counts(kEpochs);
  Position before;
  for (const auto& [end, used] : h.steps) {
    if (before.epoch >= kEpochs) {
      wrong.push_back("there are steps after the last epoch");
      break;
    }
    if (end != position(before.epoch, before.samples + int64_t(used.size())))
      wrong.push_back(concat("a step from ", before.epoch, ':', before.samples, " to ", end.epoch, ':',
                             end.samples, " used ", used.size(), " samples"));
    for (const int64_t i : used) ++counts[size_t(before.epoch)][i];
    before = end;
  }
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    int missing = 0, repeated = 0, strange = 0;
    for (int64_t i = 0; i < kSamples; ++i) missing += !counts[size_t(epoch)].count(i);
    for (const auto& [i, count] : counts[size_t(epoch)]) {
      repeated += count > 1;
      strange += i < 0 || i >= kSamples;
    }
    if (missing || repeated || strange)
      wrong.push_back(concat("epoch ", epoch, ": ", missing, " samples missing, ", repeated, " repeated, ",
                             strange, " that do not exist"));
  }
  return wrong;
}

// ---- jobs ----

struct Settings {
  std::string program, data;
};

// Files of one training.
struct Place {
  TestFolder folder;
  const std::string checkpoints = folder / "c", log = folder / "log";

  Place() { fs::create_directory(checkpoints); }
  std::string weights() const { return read_whole(folder / "mnist_cnn.safetensors"); }
};

// Starts the program on so many ranks.
std::unique_ptr<Subprocess> start(const Settings& s, const Place& place, int nproc,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> argv = {"/usr/bin/env", "-C", place.folder.path(), s.program};
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
  if (s.data.empty())
    variables["XDG_CACHE_HOME"] = place.folder.path();  // no MNIST of this machine's
  else
    add("--data", s.data);
  argv.insert(argv.end(), more.begin(), more.end());
  return std::make_unique<Subprocess>(argv, variables);
}

bool has_ended(const Subprocess& p) {
  siginfo_t info;
  info.si_pid = 0;
  return waitid(P_PID, id_t(p.pid()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

// The processes of ranks, as far as there are some just now.
std::map<int, int> processes_of_ranks(const Subprocess& p) {
  std::map<int, int> pids;
  for (const int pid : p.left()) {
    const std::string variables = '\0' + read_whole(concat("/proc/", pid, "/environ")) + '\0';
    for (int rank = 0; rank < kRanks; ++rank)
      if (variables.find(concat('\0', "RANK=", rank, '\0')) != std::string::npos) pids[rank] = pid;
  }
  return pids;
}

// Kills a process, and waits until it can do nothing more. False when it has ended already.
bool kill_now(int pid) {
  const auto ended = [&] {
    const std::string stat = read_whole(concat("/proc/", pid, "/stat"));
    const size_t name_end = stat.rfind(')');
    return name_end == std::string::npos || stat[name_end + 2] == 'Z';
  };
  if (ended() || ::kill(pid, SIGKILL) != 0) return false;
  for (int i = 0; i < 1000 && !ended(); ++i) usleep(100);
  return true;
}

int count_of(const std::string& part, const std::string& text) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// What happens in the folder of checkpoints.
class Watch {
 public:
  explicit Watch(const std::string& folder) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    inotify_add_watch(fd_, folder.c_str(), IN_OPEN | IN_CREATE | IN_MOVED_TO);
  }
  ~Watch() { close(fd_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  int begun = 0;                // a checkpoint's temporary file was opened
  int replacing = 0;            // it is complete, and the one before got its second name
  int done = 0;                 // it has its name
  std::vector<double> seconds;  // from begun to done

  // Waits for events, a moment.
  void look() {
    pollfd p{fd_, POLLIN, 0};
    poll(&p, 1, 1);
    alignas(inotify_event) char buffer[16 * (sizeof(inotify_event) + NAME_MAX + 1)];
    for (ssize_t n; (n = read(fd_, buffer, sizeof buffer)) > 0;)
      for (ssize_t at = 0; at < n;) {
        const auto* e = reinterpret_cast<const inotify_event*>(buffer + at);
        note(e->mask, e->len ? e->name : "");
        at += ssize_t(sizeof *e) + e->len;
      }
  }

 private:
  void note(uint32_t mask, const std::string& name) {
    if (name == "mnist.ckpt.tmp" && (mask & IN_OPEN)) ++begun, begun_at_ = Clock::now();
    if (name == "mnist.ckpt.previous.tmp" && (mask & IN_CREATE)) ++replacing;
    if (name == "mnist.ckpt" && (mask & IN_MOVED_TO)) ++done, seconds.push_back(seconds_since(begun_at_));
  }

  int fd_;
  Clock::time_point begun_at_;
};

// ---- kills ----

// When to kill whom.
struct Kill {
  int Watch::*event = nullptr;  // after so many of these; none: from the start, or the kill before
  int count = 0;
  double delay = 0;  // and so many seconds
  int rank = 0;
};

struct Figures {
  int kills = 0, while_writing = 0, while_replacing = 0, restarts = 0;
  std::vector<double> seconds;
};

// Waits for the job's end, and kills on the way. Returns what was wrong.
std::vector<std::string> attend(Subprocess& p, Watch& watch, const std::string& checkpoints,
                                const std::vector<Kill>& kills, Figures& figures) {
  const Clock::time_point begin = Clock::now();
  auto next = kills.begin();
  int count = 0;                 // of events before the next kill's turn
  bool reached = false;          // its event has come
  Clock::time_point at = begin;  // when that was
  const auto take_turn = [&] {
    reached = next == kills.end() || !next->event;
    at = Clock::now();
    if (!reached) count = watch.*(next->event);
  };
  take_turn();
  std::map<int, int> pids;
  while (!has_ended(p)) {
    if (seconds_since(begin) > kLimit) {
      p.kill(SIGKILL);
      p.wait();
      return {concat("it did not end within ", kLimit, " s")};
    }
    const int begun = watch.begun;
    watch.look();
    if (next == kills.end()) continue;
    if (watch.begun > begun)
      pids = processes_of_ranks(p);  // now, so that a kill comes at once when it is due
    if (!reached && watch.*(next->event) >= count + next->count) {
      reached = true;
      at = Clock::now();
    }
    if (!reached || seconds_since(at) < next->delay) continue;
    if (!next->event) pids = processes_of_ranks(p);
    if (!kill_now(pids[next->rank])) {  // between two attempts: the next one's
      pids = processes_of_ranks(p);
      continue;
    }
    ++figures.kills;
    std::error_code error;
    figures.while_writing += fs::exists(checkpoints + "/mnist.ckpt.tmp", error);
    figures.while_replacing += fs::exists(checkpoints + "/mnist.ckpt.previous.tmp", error);
    ++next;
    take_turn();
  }
  watch.look();
  p.wait();
  figures.seconds.push_back(p.seconds());
  if (!p.left().empty()) return {concat(p.left().size(), " processes are left")};
  return {};
}

// ---- repetitions ----

struct Undisturbed {
  std::string weights, checkpoint;
  double seconds = 0, save_seconds = 0;  // in all; of one checkpoint, the longest
};

class Harness {
 public:
  explicit Harness(Settings s) : settings_(std::move(s)) {}

  // Errors: what is wrong with the program itself.
  void run_undisturbed() {
    Place place;
    Watch watch(place.checkpoints);
    Figures f;
    const auto p = start(settings_, place, kRanks, {"--max-restarts", "1"});
    std::vector<std::string> wrong = attend(*p, watch, place.checkpoints, {}, f);
    if (p->wait() != 0) wrong.push_back(concat("status ", p->wait(), ": ", p->out(), p->err()));
    if (watch.done != saves_until({kEpochs, 0}))
      wrong.push_back(concat("wrote ", watch.done, " checkpoints; expected ", saves_until({kEpochs, 0})));
    for (const std::string& w : check_each_once(read_history(place.log))) wrong.push_back(w);
    reference_ = {place.weights(), read_whole(place.checkpoints + "/mnist.ckpt"), p->seconds(),
                  watch.seconds.empty() ? 0 : *std::max_element(watch.seconds.begin(), watch.seconds.end())};
    if (reference_.weights.empty()) wrong.push_back("it wrote no weights");
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
    Watch watch(place.checkpoints);
    const auto p = start(settings_, place, kRanks, {"--max-restarts", "9"});
    std::vector<std::string> wrong = attend(*p, watch, place.checkpoints, kills, f);
    const History h = read_history(place.log);
    f.restarts += count_of("all ranks start again", p->err());
    if (p->wait() != 0) wrong.push_back(concat("its status is ", p->wait()));
    // One that is written for the second time was not gone on from.
    if (watch.done != saves_until({kEpochs, 0}))
      wrong.push_back(concat("it wrote ", watch.done, " checkpoints; expected ", saves_until({kEpochs, 0})));
    for (const std::string& w : check_each_once(h)) wrong.push_back(w);
    if (place.weights() != reference_.weights)
      wrong.push_back("its weights are not those of an undisturbed run");
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
      Watch watch(place.checkpoints);
      const auto p = start(settings_, place, kRanks);
      const int kills = f.kills;
      wrong = attend(*p, watch, place.checkpoints, {kill}, f);
      const bool killed = f.kills > kills;  // else the job was faster
      if ((p->wait() != 0) != killed)
        wrong.push_back(
            concat("the job's status is ", p->wait(), ", with ", f.kills - kills, " ranks killed"));
      saves = watch.done;
      said = p->out() + p->err();
      if (killed && !count_of(concat("rank ", kill.rank, " was killed by signal 9 (SIGKILL)"), said))
        wrong.push_back("the job does not say which rank was killed");
    }
    Watch watch(place.checkpoints);
    const auto p = start(settings_, place, nproc, {"--resume", place.checkpoints + "/mnist.ckpt"});
    for (const std::string& w : attend(*p, watch, place.checkpoints, {}, f)) wrong.push_back(w);
    if (p->wait() != 0) wrong.push_back(concat("the status of the resumed job is ", p->wait()));
    const History h = read_history(place.log);
    ++f.restarts;
    if (h.begins.size() != 2 || saves_until(h.begins.back()) != saves)
      wrong.push_back(concat("it was not resumed from its checkpoint ", saves));
    for (const std::string& w : check_each_once(h)) wrong.push_back(w);
    if (!wrong.empty()) wrong.push_back(concat("the jobs said: ", said, p->out(), p->err()));
    return wrong;
  }

 private:
  Kill kill_of(const std::string& kind, Random& random, double part) const {
    if (kind == "anywhere")
      return {.delay = uniform(random, 0, part * reference_.seconds), .rank = one_of(random, 0, kRanks - 1)};
    const int64_t saves = saves_until({kEpochs, 0});
    const int count = one_of(random, 1, std::max(1, int(part * double(saves) / 2)));
    // Mostly rank 0, which writes.
    const int rank = one_of(random, 0, 3) ? 0 : kRanks - 1;
    if (kind == "writing") return {&Watch::begun, count, uniform(random, 0, reference_.save_seconds), rank};
    return {&Watch::replacing, count, 0, rank};
  }

  Settings settings_;
  Undisturbed reference_;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run_all(const Settings& settings, int repetitions, uint64_t seed) {
  Harness harness(settings);
  harness.run_undisturbed();
  std::printf("undisturbed: %.2f s, a checkpoint takes up to %.0f ms\n\n", harness.undisturbed().seconds,
              1e3 * harness.undisturbed().save_seconds);
  std::printf("%-28s %5s %6s %6s %14s %16s %9s %10s\n", "killed", "runs", "wrong", "kills", "while writing",
              "while replacing", "restarts", "median, s");
  int wrong_runs = 0;
  const auto repeat = [&](const std::string& name, auto&& once) {
    Figures f;
    int runs = 0, wrong = 0;
    for (int i = 0; i < repetitions; ++i) {
      const std::optional<std::vector<std::string>> faults = once(i, Random(seed + uint64_t(i)), f);
      if (!faults) continue;
      ++runs;
      wrong += !faults->empty();
      if (!faults->empty())
        std::fprintf(stderr, "%s, --seed %llu:\n", name.c_str(), static_cast<unsigned long long>(seed) + i);
      for (const std::string& w : *faults) std::fprintf(stderr, "  %s\n", w.c_str());
    }
    wrong_runs += wrong;
    std::printf("%-28s %5d %6d %6d %14d %16d %9d %10.2f\n", name.c_str(), runs, wrong, f.kills,
                f.while_writing, f.while_replacing, f.restarts, median(f.seconds));
    std::fflush(stdout);
  };
  const std::vector<std::string> kinds = {"anywhere", "writing", "replacing"};
  const std::vector<int> ranks = {1, 3, 4};
  for (size_t k = 0; k < kinds.size(); ++k)
    repeat(kinds[k], [&](int i, Random random, Figures& f) -> std::optional<std::vector<std::string>> {
      if (size_t(i) % kinds.size() != k) return {};
      return harness.run_killed(kinds[k], random, f);
    });
  for (size_t k = 0; k < ranks.size(); ++k)
    repeat(concat("for good, then on ", ranks[k], " ranks"),
           [&](int i, Random random, Figures& f) -> std::optional<std::vector<std::string>> {
             if (size_t(i) % ranks.size() != k) return {};
             return harness.run_resumed(ranks[k], random, f);
           });
  std::printf("%s\n", wrong_runs ? "there were wrong runs" : "all right");
  return wrong_runs ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  int repetitions = 50;
  uint64_t seed = 1;
  Settings settings;
  settings.program = (fs::read_symlink("/proc/self/exe").parent_path() / "../../../examples/mnist").string();
  CLI::App app{"Kills ranks of a training, also while they write checkpoints, many times over"};
  app.add_option("--repetitions", repetitions,
                 "jobs that restart by themselves, and as many that are resumed")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  app.add_option("--seed", seed, "of the first repetition; the next one's is one more")
      ->capture_default_str();
  app.add_option("--data", settings.data, "folder with MNIST [generated digits]")->type_name("DIR");
  app.add_option("--program", settings.program, "the training")->type_name("FILE");
  CLI11_PARSE(app, argc, argv);
  if (!settings.data.empty()) settings.data = fs::absolute(settings.data).string();
  settings.program = fs::absolute(settings.program).lexically_normal().string();
  try {
    return run_all(settings, repetitions, seed);
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 2;
  }
}
