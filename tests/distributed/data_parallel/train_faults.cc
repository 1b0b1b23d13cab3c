// Kills ranks of the training of a PGGAN (examples/gan), many times over: at any step, where the networks
// grow, and while a checkpoint is written. A killed job must recover by itself from its last checkpoint and
// leave what an undisturbed job leaves, bit by bit: the last checkpoint with networks, average, optimizers
// and schedule, the exported weights, and the grids of samples. Each sample counts once in its epoch. A job
// that is killed for good continues with another number of ranks, on the same images, with weights that
// differ by rounding alone. Exit status: 0 if all jobs were right, 1 if any was not, 2 if an undisturbed job
// fails.
//
//   tools/train-faults.sh                            50 repetitions, on digits that the program draws
//   tools/train-faults.sh --data DIR --seed 7        on images
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "gradus/data/sets/digits.h"
#include "gradus/data/transforms/tensor.h"
#include "gradus/io/checkpoint.h"
#include "gradus/io/save_image.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tests/distributed/subprocess.h"

using namespace gradus;
using namespace gradus::dist;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

struct Options {
  std::string executable, data;  // of the training; "": digits that this program draws
  int repetitions = 50;
  uint64_t seed = 1;
};

int one_of(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// ---- the training ----

struct Phase {
  int64_t size, images, batch;
};
// Sizes 8 and 16 begin after 9 and 25 steps. Each size fades in during its first images. The last batches
// divide the data set, so all epochs use all of its images.
const std::vector<Phase> kPlan = {{4, 72, 8}, {8, 128, 8}, {16, 60, 4}};
constexpr int64_t kSteps = 40, kImages = 260, kDigits = 72;
// The last two checkpoints are one step apart.
constexpr int64_t kInterval = 3;
static_assert(kSteps % kInterval == 1);
constexpr int64_t kSampleEvery = 24;  // images
constexpr int kGrowths[] = {9, 25};
constexpr std::chrono::seconds kLimit{120};

// Returns the images that so many steps use.
int64_t images_of(int64_t steps) {
  int64_t all = 0;
  for (const Phase& phase : kPlan) {
    const int64_t of_phase = std::min(steps, phase.images / phase.batch);
    all += of_phase * phase.batch;
    steps -= of_phase;
  }
  return all;
}

// ---- the sample log ----

// The training logs "from EPOCH SAMPLES" when a run begins, and "EPOCH SAMPLES INDEX..." after each step: its
// position and the samples it used. Positions are counted in images since the beginning of the training.
struct History {
  std::vector<int64_t> begins;                    // of each run
  std::map<int64_t, std::vector<int64_t>> steps;  // the samples of each step that counts, by its end
};

History read_history(const std::string& log, int64_t per_epoch) {
  History h;
  std::istringstream lines(log.substr(0, log.rfind('\n') + 1));
  for (std::string line; std::getline(lines, line);) {
    const bool begins = line.starts_with("from ");
    std::istringstream words(begins ? line.substr(5) : line);
    int64_t epoch = 0, samples = 0;
    words >> epoch >> samples;
    const int64_t at = epoch * per_epoch + samples;
    if (begins) {
      h.begins.push_back(at);
      h.steps.erase(h.steps.upper_bound(at), h.steps.end());
    } else {
      for (int64_t index; words >> index;) h.steps[at].push_back(index);
    }
  }
  return h;
}

// Adds what is wrong with a history that should have each sample once in each epoch.
void check_each_once(const History& h, int64_t per_epoch, std::vector<std::string>& wrong) {
  int64_t before = 0;
  std::set<std::pair<int64_t, int64_t>> seen;  // epoch and sample
  for (const auto& [end, samples] : h.steps) {
    if (end != before + int64_t(samples.size()))
      wrong.push_back(concat("a step from ", before, " to ", end, " used ", samples.size(), " samples"));
    for (const int64_t i : samples)
      if (i < 0 || i >= per_epoch || !seen.emplace(before / per_epoch, i).second)
        wrong.push_back(concat("sample ", i, " of the step to ", end, " is repeated or does not exist"));
    before = end;
  }
  if (before != kImages) wrong.push_back(concat("the steps used ", before, " of ", kImages, " images"));
}

// ---- what a job leaves ----

using Texts = std::map<std::string, std::string>;

// The files of one job.
struct JobFiles {
  TestFolder folder;
  const std::string checkpoints = folder / "c", file = checkpoints + "/gan.ckpt", log = folder / "log";
  JobFiles() { fs::create_directory(checkpoints); }
};

// Adds the values of the last checkpoint as bytes, without those that differ from job to job.
void add_values(Texts& texts, const io::Checkpoint& c) {
  c.each([&](const std::string& name, const auto& value) {
    std::string& text = texts["checkpoint " + name];
    if (name == "seconds" || name == "job") return;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, Tensor>)
      text = concat(describe(value), ' ') +
             std::string(static_cast<const char*>(value.raw_ptr()), size_t(value.nbytes()));
    else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, double>)
      text = std::string(reinterpret_cast<const char*>(&value), sizeof value);
    else
      text = concat(value);
  });
}

// Returns all that a job leaves, by name; of the summary the figures that do not depend on time.
Texts results_of(const JobFiles& files) {
  Texts texts{{"weights", read_whole(files.folder / "w.safetensors")}};
  const auto json = nlohmann::json::parse(read_whole(files.folder / "s.json"), nullptr, false);
  for (const char* key :
       {"train_samples", "epochs", "steps", "images", "scale", "fade", "d_steps", "g_steps"})
    if (json.is_object() && json.contains(key)) texts[concat("summary ", key)] = json.at(key).dump();
  for (const auto& entry : fs::recursive_directory_iterator(files.checkpoints)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".png") texts["grid " + path.filename().string()] = read_whole(path);
    if (path.extension() == ".tmp") texts["temporary file " + path.filename().string()] = "";
  }
  try {
    add_values(texts, io::load_checkpoint(files.file).checkpoint);
  } catch (const Error& e) {
    texts["checkpoint"] = e.what();
  }
  return texts;
}

// Adds which of these differ, or are only on one side.
void compare(const Texts& is, const Texts& expected, std::vector<std::string>& wrong) {
  for (const auto& [name, value] : is)
    if (!expected.contains(name)) wrong.push_back(name + " is new");
  for (const auto& [name, value] : expected)
    if (!is.contains(name) || is.at(name) != value)
      wrong.push_back(name + (is.contains(name) ? " differs" : " is missing"));
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

// ---- kills ----

// A rank is killed when the training has begun the step that ends after so many images, and a delay later.
struct Kill {
  int64_t images = 0;
  int rank = 0;
  bool in_checkpoint = false;  // instead of the delay: as soon as a checkpoint is written
  std::chrono::microseconds delay{0};
};

bool has_ended(const Subprocess& p) {
  siginfo_t info;
  info.si_pid = 0;
  return waitid(P_PID, id_t(p.pid()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

// Returns the process of a rank; 0 if there is none just now.
int process_of_rank(const Subprocess& p, int rank) {
  for (const int pid : p.left()) {
    const std::string variables = '\0' + read_whole(concat("/proc/", pid, "/environ")) + '\0';
    if (variables.find(concat('\0', "RANK=", rank, '\0')) != std::string::npos) return pid;
  }
  return 0;
}

// Waits for the end of a job, and performs the kills. Returns their number; adds what is wrong to `wrong`.
int attend(Subprocess& job, const JobFiles& files, int64_t per_epoch, const std::vector<Kill>& kills,
           std::vector<std::string>& wrong) {
  const Clock::time_point begin = Clock::now();
  const auto until = [&](auto&& is_true) {
    while (!has_ended(job) && Clock::now() - begin < kLimit) {
      if (is_true()) return true;
      usleep(200);
    }
    return false;
  };
  size_t seen = read_whole(files.log).size();  // of the log, before the current run
  int killed = 0;
  for (const Kill& kill : kills) {
    int64_t images = 0;
    const auto has_begun = [&](int64_t count) {
      const History h = read_history(read_whole(files.log).substr(seen), per_epoch);
      images = h.steps.empty() ? 0 : h.steps.rbegin()->first;
      return !h.begins.empty() && images >= count;
    };
    int pid = 0;  // found early: a search takes longer than a checkpoint
    if (!until([&] { return has_begun(0) && (pid = process_of_rank(job, kill.rank)) > 0; })) break;
    const bool due = until([&] {
      std::error_code error;
      return has_begun(kill.images) && (!kill.in_checkpoint || fs::exists(files.file + ".tmp", error));
    });
    if (!due) break;
    std::this_thread::sleep_for(kill.delay);
    killed += ::kill(pid, SIGKILL) == 0;
    // A step that all ranks had begun is logged also after the death of one. Such lines precede the next
    // "from".
    seen = read_whole(files.log).size();
  }
  if (!until([] { return false; }) && !has_ended(job)) {
    wrong.push_back(concat("the job did not end within ", kLimit.count(), " s"));
    job.kill(SIGKILL);
  }
  job.wait();
  if (!job.left().empty()) wrong.push_back(concat(job.left().size(), " processes are left"));
  return killed;
}

// ---- jobs ----

struct Undisturbed {
  Texts results;
  io::Checkpoint last, before_last;
};

class Harness {
 public:
  explicit Harness(Options o) : options_(std::move(o)) {
    if (options_.data.empty()) draw_digits();
    run_undisturbed(1);
  }

  // A job that is killed once or twice and restarts by itself. Returns what is wrong.
  std::vector<std::string> run_killed(int nproc, Random random) {
    const Undisturbed& u = undisturbed(nproc);
    std::vector<Kill> kills = {make_kill(nproc, random)};
    if (one_of(random, 0, 1)) kills.push_back(make_kill(nproc, random));
    std::ranges::sort(kills, {}, &Kill::images);
    JobFiles files;
    const auto p = start(files, nproc, {"--max-restarts", "9"});
    std::vector<std::string> wrong;
    attend(*p, files, per_epoch_, kills, wrong);
    if (p->wait() != 0) wrong.push_back(concat("its status is ", p->wait()));
    check_each_once(read_history(read_whole(files.log), per_epoch_), per_epoch_, wrong);
    compare(results_of(files), u.results, wrong);
    if (!wrong.empty()) wrong.push_back(concat("the job wrote: ", p->out(), p->err()));
    return wrong;
  }

  // A kill that ends a job, which continues with another number of ranks.
  std::vector<std::string> run_resumed(int before, int after, Random random) {
    const Undisturbed& u = undisturbed(before);
    const Kill kill = make_kill(before, random);
    JobFiles files;
    std::vector<std::string> wrong;
    const auto first = start(files, before);
    const int killed = attend(*first, files, per_epoch_, {kill}, wrong);
    if ((first->wait() != 0) != (killed > 0))  // else the job was faster
      wrong.push_back(concat("the job's status is ", first->wait(), " after ", killed, " kills"));
    const auto second = start(files, after);
    attend(*second, files, per_epoch_, {}, wrong);
    if (second->wait() != 0) wrong.push_back(concat("the status of the resumed job is ", second->wait()));
    const History h = read_history(read_whole(files.log), per_epoch_);
    check_each_once(h, per_epoch_, wrong);
    if (h.begins.size() != 2 || h.begins.back() < kill.images - images_of(2 * kInterval + 1))
      wrong.emplace_back("it was not resumed from its last checkpoint");
    // Another number of ranks rounds otherwise: names and figures are equal, and weights nearly are.
    const auto comparable = [](Texts texts) {
      for (auto& [name, text] : texts)
        if (!name.starts_with("summary ")) text.clear();
      std::erase_if(texts, [](const auto& text) { return text.first.starts_with("checkpoint "); });
      return texts;
    };
    compare(comparable(results_of(files)), comparable(u.results), wrong);
    try {
      check_near(io::load_checkpoint(files.file).checkpoint, u.last, wrong);
    } catch (const Error& e) {
      wrong.emplace_back(e.what());
    }
    if (!wrong.empty())
      wrong.push_back(concat("the jobs wrote: ", first->out(), first->err(), second->out(), second->err()));
    return wrong;
  }

 private:
  void draw_digits() {
    const data::GeneratedDigits digits({.size = kDigits, .transform = data::ToTensor()});
    options_.data = images_ / "digits";
    fs::create_directory(options_.data);
    for (int64_t i = 0; i < kDigits; ++i)
      io::save_image(concat(options_.data, '/', 100 + i, ".png"), digits.get(i).input);
  }

  std::unique_ptr<Subprocess> start(const JobFiles& files, int nproc,
                                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> argv = {"/usr/bin/env", "-C", files.folder.path(), options_.executable};
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
    add("--fade", 52);
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

  // Errors: what is wrong with the program itself, or with the images.
  void run_undisturbed(int nproc) {
    JobFiles files;
    std::vector<std::string> wrong;
    const auto p = start(files, nproc);
    attend(*p, files, per_epoch_, {}, wrong);
    if (p->wait() != 0) throw StateError("train_faults", "status ", p->wait(), ": ", p->err());
    Undisturbed& u = undisturbed_[nproc];
    u = {.results = results_of(files),
         .last = io::load_checkpoint(files.file).checkpoint,
         .before_last = io::load_checkpoint(files.file + ".previous").checkpoint};
    per_epoch_ = std::stoll(u.results.at("summary train_samples"));
    if (per_epoch_ % kPlan[0].batch != 0)
      throw ValueError("train_faults", "expected a multiple of ", kPlan[0].batch, " images, got ",
                       per_epoch_);
    check_each_once(read_history(read_whole(files.log), per_epoch_), per_epoch_, wrong);
    for (const auto& [figure, value] : {std::pair("steps", kSteps), {"images", kImages}, {"scale", 16}})
      if (u.results.at(concat("summary ", figure)) != concat(value))
        wrong.push_back(concat(figure, " is ", u.results.at(concat("summary ", figure))));
    if (std::ranges::count_if(u.results, [](const auto& r) { return r.first.starts_with("grid "); }) !=
        2 * (kImages / kSampleEvery))
      wrong.emplace_back("it wrote another number of grids");
    if (u.results.at("weights").empty()) wrong.emplace_back("it exported no weights");
    if (!wrong.empty()) throw StateError("train_faults", "an undisturbed run: ", wrong[0]);
    std::printf("undisturbed, %d ranks: %.2f s\n", nproc, p->seconds());
  }
  const Undisturbed& undisturbed(int nproc) {
    if (!undisturbed_.contains(nproc)) run_undisturbed(nproc);
    return undisturbed_.at(nproc);
  }

  Kill make_kill(int nproc, Random& random) const {
    const int kind = one_of(random, 0, 2);
    const int step = kind == 0 ? kGrowths[one_of(random, 0, 1)] : one_of(random, 0, int(kSteps) * 3 / 4);
    Kill kill{.images = images_of(step + 1), .rank = one_of(random, 0, nproc - 1)};
    if (kind == 1) {
      kill.in_checkpoint = true;
      if (one_of(random, 0, 3)) kill.rank = 0;  // the rank that writes
    } else {
      kill.delay = std::chrono::microseconds(one_of(random, 0, 20'000));  // about a step
    }
    return kill;
  }

  // How far weights may be from those of an undisturbed run, relative to their norm: half of what the last
  // step did. Rounding moves them by less than 1e-6, unless it turns the sign of an update, or takes a leaky
  // ReLU's input to the other side of zero: then by 2e-4 as measured. A training that lost a step or a part
  // of its state would be some 1e-3 away, or more.
  void check_near(const io::Checkpoint& c, const io::Checkpoint& expected, std::vector<std::string>& wrong) {
    const Undisturbed& alone = undisturbed(1);
    for (const char* part : {"model", "ema"}) {
      const double d = distance(c, expected, part), limit = distance(alone.before_last, alone.last, part) / 2;
      if (!(d <= limit)) wrong.push_back(concat("its ", part, " is ", d, " away, allowed is ", limit));
    }
  }

  Options options_;
  TestFolder images_;
  int64_t per_epoch_ = kDigits;
  std::map<int, Undisturbed> undisturbed_;
};

int run_all(const Options& options) {
  Harness harness(options);
  int wrong_jobs = 0;
  for (int i = 0; i < options.repetitions; ++i) {
    const uint64_t seed = options.seed + uint64_t(i);
    const auto report = [&](const std::string& job, const std::vector<std::string>& wrong) {
      std::printf("seed %llu, %s: %s\n", static_cast<unsigned long long>(seed), job.c_str(),
                  wrong.empty() ? "right" : "wrong");
      for (const std::string& w : wrong) std::fprintf(stderr, "  %s\n", w.c_str());
      std::fflush(stdout);
      wrong_jobs += !wrong.empty();
    };
    const int nproc = i % 2 ? 4 : 2, after = i % 3 == 2 ? 1 : 6 - nproc;
    report(concat(nproc, " ranks that start again"), harness.run_killed(nproc, Random(seed)));
    report(concat(nproc, " ranks, then ", after), harness.run_resumed(nproc, after, Random(seed)));
  }
  std::printf("%s\n", wrong_jobs ? "there were wrong jobs" : "all right");
  return wrong_jobs ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Kills ranks of a training, also while they write checkpoints, many times over"};
  app.add_option("--repetitions", options.repetitions,
                 "jobs that restart by themselves, and as many that are resumed")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  app.add_option("--seed", options.seed, "of the first repetition; the next one's is one more")
      ->capture_default_str();
  app.add_option("--data", options.data, "folder with images [digits it draws]")->type_name("DIR");
  app.add_option("--executable", options.executable, "of the program gan [its own]")->type_name("FILE");
  CLI11_PARSE(app, argc, argv);
  if (!options.data.empty()) options.data = fs::absolute(options.data).string();
  if (options.executable.empty())
    options.executable =
        (fs::read_symlink("/proc/self/exe").parent_path() / "../../../examples/gan").string();
  options.executable = fs::absolute(options.executable).lexically_normal().string();
  try {
    return run_all(options);
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 2;
  }
}
