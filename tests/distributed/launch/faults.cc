// Kills or stops ranks, or lets them do what the others do not, many times over. Every other rank must get a
// typed error that names the right rank and cause within two seconds. The launcher must end within five
// seconds, and nothing may be left.
//
//   tools/faults.sh                          50 repetitions of every fault, with 2 and 4 ranks
//   tools/faults.sh --pipeline               the same for ranks of a pipeline
//   tools/faults.sh --kind stop --repetitions 5 --seed 7
//   tools/faults.sh --kind throw --world 2,3,4 --repetitions 170     exceptions anywhere in a training's step
#include <dirent.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/launch/supervisor.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/data_parallel/throwing_training.h"
#include "gradus/tests/distributed/launch/faulty_pipeline.h"
#include "gradus/tests/distributed/subprocess.h"

using namespace gradus;
using namespace gradus::dist;

namespace {

constexpr double kErrorLimit = 2, kLauncherLimit = 5;  // seconds
constexpr Milliseconds kStopTimeout{1'000};

// ---- faults ----

struct Kind {
  const char* name;
  bool from_outside;  // killed by the harness at a random time, else by the rank itself in a random step
  double patience;    // seconds that the others wait before they can know
  const char* error;  // the others' error type
  std::vector<std::string> causes;  // of which one is in its text
};

const std::vector<Kind> kKinds = {
    {"kill-collective", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"kill-message", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"kill-store", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"kill-rendezvous", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"exception", false, 0, "PeerError", {"failed: StateError: [faults] on purpose"}},
    {"exit", false, 0, "PeerError", {"has left the job", "exited with code 3", "exited with code 0"}},
    {"throw", false, 0, "", {}},  // judged by the training itself
    {"stop", false, kStopTimeout.count() / 1000.0, "TimeoutError", {"did not come to"}},
    {"other-call", false, 0, "MismatchError", {"broadcast"}},
    {"other-order", false, 0, "MismatchError", {"broadcast"}},
    {"other-op", false, 0, "MismatchError", {"max"}},
    {"other-shape", false, 0, "MismatchError", {"["}},
    {"other-dtype", false, 0, "MismatchError", {"i64"}},
    {"pipeline-kill", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"pipeline-exit",
     false,
     0,
     "PeerError",
     {"has left the job", "exited with code 3", "exited with code 0"}},
    {"pipeline-stop", false, kStopTimeout.count() / 1000.0, "TimeoutError", {"did not", "does not"}},
    {"pipeline-forward", false, 0, "PeerError", {"[faults] on purpose"}},
    {"pipeline-input-gradient", false, 0, "PeerError", {"[faults] on purpose"}},
    {"pipeline-weight-gradient", false, 0, "PeerError", {"[faults] on purpose"}},
    {"pipeline-shape", false, 0, "PeerError", {"[2,5]"}},
    {"pipeline-evaluation", false, 0, "MismatchError", {"runs another step than"}},
    {"pipeline-micro-batches", false, 0, "MismatchError", {"runs another step than"}},
    {"pipeline-schedule", false, 0, "MismatchError", {"runs another step than"}},
};

bool is_pipeline(const std::string& kind) { return kind.starts_with("pipeline-"); }

const Kind& kind_named(const std::string& name) {
  for (const Kind& k : kKinds)
    if (name == k.name) return k;
  throw ValueError("faults", "there is no kind '", name, "'");
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// ---- a rank ----

// Lines that the harness reads: "rank time event text".
void note(const std::string& event, const std::string& text = "") {
  const std::string line = concat(std::getenv("RANK"), ' ', now_ns(), ' ', event, ' ', text, '\n');
  FILE* file = std::fopen(std::getenv("FAULTS_LOG"), "a");
  std::fwrite(line.data(), 1, line.size(), file);
  std::fclose(file);
}

// One step of what all ranks do for ever.
void step(const std::string& kind, int i, std::mt19937& random) {
  const int rank = get_rank(), size = get_world_size();
  const int64_t elements = kind == "kill-collective" || kind == "kill-message" ? 1 << (random() % 18) : 16;
  if (kind == "kill-store") {
    Client client = get_client();
    client.user_set(concat("step ", i, " of ", rank), "x");
    client.user_get(concat("step ", i, " of ", (rank + 1) % size));
    if (i % 4 == 3) group_barrier();
  } else if (kind == "kill-message") {
    Tensor mine = full({elements}, rank), theirs = zeros({elements});
    Work received = irecv(theirs, {.src = (rank + size - 1) % size});
    send(mine, {.dst = (rank + 1) % size});
    received.wait();
  } else {
    Tensor x = full({elements}, rank);
    switch (kind == "kill-collective" ? i % 4 : 0) {
      case 0:
        all_reduce(x);
        break;
      case 1:
        broadcast(x, {.src = i % size});
        break;
      case 2:
        all_gather(x);
        break;
      default:
        barrier();
    }
    if (kind == "other-order") broadcast(x);
  }
}

// What the rank at fault does instead.
void do_fault(const std::string& kind, int64_t seed) {
  note("fault");
  if (is_pipeline(kind) && kind != "pipeline-exit" && kind != "pipeline-stop") return;
  Tensor x = full({16}, 1);
  if (kind == "exception") throw StateError("faults", "on purpose");
  if (kind == "exit" || kind == "pipeline-exit") {
    const int64_t how = seed % 3;
    if (how == 0) std::exit(0);
    if (how == 1) std::exit(3);
    _exit(0);
  }
  if (kind == "stop" || kind == "pipeline-stop") raise(SIGSTOP);
  if (kind == "other-call") broadcast(x);
  if (kind == "other-order") {
    broadcast(x);
    all_reduce(x);
  }
  if (kind == "other-op") all_reduce(x, {.op = ReduceOp::kMax});
  if (kind == "other-shape") all_reduce(full({4, 4, 2}, 1));
  if (kind == "other-dtype") all_reduce(full({16}, 1, {.dtype = DType::kI64}));
}

// A rank of a training in which one throws. Every other seed goes without shared memory.
int be_training(int64_t seed) {
  const auto training = ThrowingTraining::random(uint64_t(seed), std::atoi(std::getenv("WORLD_SIZE")));
  init_process_group({.timeout = Milliseconds(60'000), .shared_memory = seed % 2 == 0});
  try {
    training.run([] { note("fault"); });
  } catch (const DistributedError& e) {
    note("error", concat("DistributedError ", e.rank(), ' ', e.what()));
    return 1;
  } catch (...) {
    if (get_rank() != training.victim) note("error", "untyped -1 not of the framework's");
    throw;
  }
  destroy_process_group();
  return 0;
}

int be_rank(const std::string& kind, int victim, int64_t seed) {
  note("start", std::to_string(getpid()));
  if (kind == "throw") return be_training(seed);
  std::mt19937 random(static_cast<unsigned>(seed));  // the same on all ranks
  const bool at_fault = std::atoi(std::getenv("RANK")) == victim;
  const bool from_outside = kind_named(kind).from_outside || kind == "pipeline-schedule";
  const int when = from_outside ? -1 : int(random() % (is_pipeline(kind) ? 8 : 40));
  try {
    const bool stops = kind == "stop" || kind == "pipeline-stop";
    init_process_group(
        {.timeout = stops ? kStopTimeout : Milliseconds(20'000), .init_timeout = Milliseconds(20'000)});
    std::optional<FaultyPipeline> pipeline;
    if (is_pipeline(kind)) {
      if (at_fault && kind == "pipeline-schedule") note("fault");
      pipeline.emplace(kind, at_fault, seed);
    }
    note("ready");
    for (int i = 0;; ++i)
      if (at_fault && i == when) {
        do_fault(kind, seed);
        if (pipeline) pipeline->fault();
      } else if (pipeline) {
        pipeline->step();
      } else {
        step(kind, i, random);
      }
  } catch (const PeerError& e) {
    note("error", concat("PeerError ", e.rank(), ' ', e.what()));
  } catch (const TimeoutError& e) {
    note("error", concat("TimeoutError ", e.rank(), ' ', e.what()));
  } catch (const MismatchError& e) {
    note("error", concat("MismatchError ", e.rank(), ' ', e.what()));
  } catch (const DistributedError& e) {
    note("error", concat("other ", e.rank(), ' ', e.what()));
  } catch (const StateError&) {
    throw;  // the one on purpose
  } catch (const ShapeError&) {
    throw;
  } catch (const std::exception& e) {
    note("error", concat("untyped -1 ", e.what()));
  }
  return 1;
}

// The launcher of such ranks.
int be_launcher(const std::vector<std::string>& argv, int world) {
  dist::internal::SupervisorOptions spec{
      .op = "faults", .path = "/proc/self/exe", .argv = argv, .nproc = world};
  const dist::internal::Outcome outcome = dist::internal::supervise(spec);
  std::cerr << dist::internal::failure_report("faults", outcome);
  return outcome.ok ? 0 : 1;
}

// ---- the harness ----

struct Event {
  int rank;
  int64_t time;
  std::string name, text;
};

std::vector<Event> events_in(const std::string& log) {
  std::vector<Event> events;
  std::istringstream lines(read_whole(log));
  for (std::string line; std::getline(lines, line);) {
    Event e;
    std::istringstream words(line);
    words >> e.rank >> e.time >> e.name;
    std::getline(words >> std::ws, e.text);
    events.push_back(e);
  }
  return events;
}

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.insert(entry.path().filename());
  return names;
}

std::string own_path() {
  char path[4096] = "";
  (void)!readlink("/proc/self/exe", path, sizeof path - 1);
  return path;
}

struct Figures {
  std::vector<double> errors, launcher;  // seconds
  int runs = 0, wrong = 0;
};

// Waits for an event of a rank; none when the launcher has ended before.
std::optional<Event> wait_for_event(const std::string& log, int rank, const std::string& name,
                                    double seconds) {
  for (int i = 0; i < seconds * 1000; ++i) {
    for (const Event& e : events_in(log))
      if (e.rank == rank && e.name == name) return e;
    usleep(1000);
  }
  return {};
}

// What was wrong with the errors of a training in which one rank has thrown.
std::vector<std::string> judge_training(const ThrowingTraining& training, const std::vector<Event>& events,
                                        int64_t fault, Figures& figures, bool& ends_well) {
  std::vector<std::string> wrong;
  ends_well = true;
  for (int rank = 0; rank < training.world; ++rank) {
    if (rank == training.victim) continue;
    int named = -1;
    std::string text;
    for (const Event& e : events) {
      if (e.rank != rank || e.name != "error") continue;
      std::string type;
      std::istringstream words(e.text);
      words >> type >> named;
      std::getline(words >> std::ws, text);
      const double seconds = double(e.time - fault) / 1e9;
      figures.errors.push_back(seconds);
      if (seconds > kErrorLimit) wrong.push_back(concat("rank ", rank, "'s error took ", seconds, " s"));
    }
    ends_well = ends_well && text.empty();
    if (const std::string w = training.judge(named, text); !w.empty())
      wrong.push_back(concat("rank ", rank, ": ", w, ": ", text));
  }
  if (!wrong.empty()) wrong.insert(wrong.begin(), training.text());
  return wrong;
}

// Runs one job with one fault. Returns what was wrong.
std::vector<std::string> run_once(const Kind& kind, int world, int64_t seed, Figures& figures) {
  TestFolder folder;
  const std::string log = folder / "log", temporary = folder / "tmp";
  std::filesystem::create_directory(temporary);
  const std::set<std::string> segments = files_in("/dev/shm");
  std::mt19937 random(static_cast<unsigned>(seed * 7919 + world));
  const bool throws = kind.name == std::string("throw");
  const auto training = ThrowingTraining::random(uint64_t(seed), world);
  const int victim = throws ? training.victim : int(random() % unsigned(world));
  Subprocess p({own_path(), "--launcher", std::to_string(world), kind.name, std::to_string(victim),
                std::to_string(seed)},
               {{"FAULTS_LOG", log}, {"TMPDIR", temporary}});

  int64_t fault = 0;
  if (kind.from_outside) {
    const bool early = kind.name == std::string("kill-rendezvous");
    const auto start = wait_for_event(log, victim, "start", 20);
    const auto ready = early ? start : wait_for_event(log, victim, "ready", 20);
    if (!start || !ready) {
      p.kill(SIGTERM);
      p.wait();
      return {"the ranks did not begin: " + p.err()};
    }
    usleep(useconds_t(random() % (early ? 12'000 : 100'000)));
    fault = now_ns();
    kill(std::stoi(start->text), SIGKILL);
  }
  const int status = p.wait();
  const int64_t end = now_ns();

  std::vector<std::string> wrong;
  const std::vector<Event> events = events_in(log);
  for (const Event& e : events)
    if (e.name == "fault") fault = e.time;
  if (!fault) wrong.push_back("the fault did not happen");
  const bool mismatch = kind.error == std::string("MismatchError");
  const int thrower = FaultyPipeline::thrower(kind.name, world, victim, seed);
  const std::string name = concat("rank ", thrower);
  std::optional<std::string> common;
  int64_t first_error = INT64_MAX;
  bool ends_well = false;
  if (throws && fault) wrong = judge_training(training, events, fault, figures, ends_well);
  for (int rank = 0; rank < world && !throws; ++rank) {
    if (rank == thrower && !mismatch) continue;
    const auto e = std::find_if(events.begin(), events.end(),
                                [&](const Event& e) { return e.rank == rank && e.name == "error"; });
    if (e == events.end()) {
      wrong.push_back(concat("rank ", rank, " got no error"));
      continue;
    }
    first_error = std::min(first_error, e->time);
    const double seconds = double(e->time - fault) / 1e9;
    figures.errors.push_back(seconds - kind.patience);
    if (seconds > kErrorLimit + kind.patience)
      wrong.push_back(concat("rank ", rank, "'s error took ", seconds, " s"));
    std::istringstream words(e->text);
    std::string type, text;
    int named = -1;
    words >> type >> named;
    std::getline(words >> std::ws, text);
    if (type != kind.error) wrong.push_back(concat("rank ", rank, " got a ", type, ": ", text));
    const bool either = mismatch && (world == 2 || is_pipeline(kind.name));  // one of two that differ
    if (named != thrower && !either)
      wrong.push_back(concat("rank ", rank, "'s error has rank ", named, ": ", text));
    if (text.find(name) == std::string::npos)
      wrong.push_back(concat("rank ", rank, "'s error does not name ", name, ": ", text));
    const std::string action = FaultyPipeline::action(kind.name, world, victim, seed);
    if (text.find(action) == std::string::npos)
      wrong.push_back(concat("rank ", rank, "'s error does not say ", action, ": ", text));
    if (thrower != victim && text.find(concat("where rank ", victim, " sent ")) == std::string::npos)
      wrong.push_back(concat("rank ", rank, "'s error does not say what rank ", victim, " sent: ", text));
    const bool cause = std::any_of(kind.causes.begin(), kind.causes.end(),
                                   [&](const std::string& c) { return text.find(c) != std::string::npos; });
    if (!cause) wrong.push_back(concat("rank ", rank, "'s error does not say why: ", text));
    if (mismatch) {  // the same on all ranks, but for the call that throws it
      text = text.substr(text.find(']') + 1);
      if (common && *common != text) wrong.push_back(concat("errors differ: ", *common, " and ", text));
      common = text;
    }
  }
  // A rank that is stopped is no failure until the others' time is over.
  const int64_t known = kind.patience > 0 ? std::min(first_error, end) : fault;
  const double launcher = double(end - known) / 1e9;
  figures.launcher.push_back(launcher);
  if (launcher > kLauncherLimit && !ends_well) wrong.push_back(concat("the launcher took ", launcher, " s"));
  if (status != (ends_well ? 0 : 1)) wrong.push_back(concat("the launcher's status is ", status));
  const std::string shown = p.err().substr(std::min(p.err().find("faults: "), p.err().size()));
  if (!ends_well && shown.substr(0, shown.find('\n')).find(name) == std::string::npos)
    wrong.push_back("the launcher does not show the first failure");
  if (!p.left().empty()) wrong.push_back(concat(p.left().size(), " processes are left"));
  if (!files_in(temporary).empty()) wrong.push_back("a temporary file is left");
  for (const std::string& s : files_in("/dev/shm"))
    if (!segments.count(s) && s.find("gradus") != std::string::npos)
      wrong.push_back("a segment is left: " + s);
  if (!wrong.empty()) wrong.push_back("the launcher said: " + p.err());
  return wrong;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
double greatest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

int run_all(const std::vector<std::string>& kinds, const std::vector<int>& worlds, int repetitions,
            int64_t seed) {
  std::printf("%-16s %5s %5s %6s   %-21s %-21s\n", "", "", "", "", "others' error, ms", "launcher's end, ms");
  std::printf("%-16s %5s %5s %6s   %10s %10s %10s %10s\n", "fault", "ranks", "runs", "wrong", "median", "max",
              "median", "max");
  int wrong_runs = 0;
  for (const std::string& name : kinds)
    for (const int world : worlds) {
      const Kind& kind = kind_named(name);
      Figures f;
      for (int i = 0; i < repetitions; ++i) {
        const std::vector<std::string> wrong = run_once(kind, world, seed + i, f);
        ++f.runs;
        f.wrong += !wrong.empty();
        if (!wrong.empty())
          std::fprintf(stderr, "%s with %d ranks, --seed %ld:\n", kind.name, world, long(seed + i));
        for (const std::string& w : wrong) std::fprintf(stderr, "  %s\n", w.c_str());
      }
      wrong_runs += f.wrong;
      std::printf("%-16s %5d %5d %6d   %10.0f %10.0f %10.0f %10.0f\n", kind.name, world, f.runs, f.wrong,
                  1e3 * median(f.errors), 1e3 * greatest(f.errors), 1e3 * median(f.launcher),
                  1e3 * greatest(f.launcher));
      std::fflush(stdout);
    }
  std::printf("%s\n", wrong_runs ? "there were wrong runs"
                                 : "all right; for \"stop\" times are beyond the calls' timeout");
  return wrong_runs ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> all(argv, argv + argc);
  if (argc == 6 && all[1] == "--launcher")
    return be_launcher({all[0], "--rank", all[3], all[4], all[5]}, std::stoi(all[2]));
  if (argc == 5 && all[1] == "--rank") return be_rank(all[2], std::stoi(all[3]), std::stoll(all[4]));

  int repetitions = 50;
  int64_t seed = 1;
  std::vector<int> worlds = {2, 4};
  std::vector<std::string> kinds;
  CLI::App app{"Kills and stops ranks, and lets them do what others do not, many times over"};
  app.add_option("--repetitions", repetitions, "of each fault")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  app.add_option("--seed", seed, "of the first repetition; the next one's is one more")
      ->capture_default_str();
  app.add_option("--world", worlds, "numbers of ranks")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  app.add_option("--kind", kinds, "only these faults")->delimiter(',');
  bool pipelines = false;
  app.add_flag("--pipeline", pipelines, "faults in pipelines");
  CLI11_PARSE(app, argc, argv);
  if (kinds.empty())
    for (const Kind& k : kKinds)
      if (is_pipeline(k.name) == pipelines) kinds.push_back(k.name);
  try {
    return run_all(kinds, worlds, repetitions, seed);
  } catch (const ValueError& e) {
    std::cerr << e.what() << std::endl;
    return 2;
  }
}
