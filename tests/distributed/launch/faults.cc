// Kills or stops ranks, or makes them throw, exit or call what the others do not, many times over. Every
// other rank must get a typed error that names the right rank and cause within two seconds. The launcher must
// end within five seconds, and no process, file or shared memory may be left. Prints a table of times (ms).
// Exit status: 0 if all runs were right, 1 if not, 2 for a wrong argument.
//
//   tools/faults.sh                          50 repetitions of every fault, with 2 and 4 ranks
//   tools/faults.sh --pipeline               the same for ranks of a pipeline
//   tools/faults.sh --kind stop --repetitions 5 --seed 7
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/launch/supervisor.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/nn/nn.h"
#include "gradus/tests/distributed/subprocess.h"

using namespace gradus;
using namespace gradus::dist;

namespace {

constexpr double kErrorLimit = 2, kLauncherLimit = 5;  // seconds
constexpr Milliseconds kStopTimeout{1'000};

// ---- faults ----

struct Kind {
  const char* name;
  bool from_outside;  // killed by the harness at a random time; else the rank itself fails in a random step
  double patience;    // seconds (the timeout) until the others can detect the fault
  const char* error;  // the others' error type
  std::vector<std::string> causes;  // the error's text has one of these
};

const std::vector<Kind> kKinds = {
    {"kill-collective", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"kill-message", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"kill-store", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"kill-rendezvous", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"exception", false, 0, "PeerError", {"failed: StateError: [faults] on purpose"}},
    {"exit", false, 0, "PeerError", {"has left the job", "exited with code 3", "exited with code 0"}},
    {"stop", false, kStopTimeout.count() / 1000.0, "TimeoutError", {"did not come to"}},
    {"other-call", false, 0, "MismatchError", {"broadcast"}},
    {"pipeline-kill", true, 0, "PeerError", {"was killed by signal 9 (SIGKILL)"}},
    {"pipeline-exit",
     false,
     0,
     "PeerError",
     {"has left the job", "exited with code 3", "exited with code 0"}},
    {"pipeline-stop", false, kStopTimeout.count() / 1000.0, "TimeoutError", {"did not", "does not"}},
    {"pipeline-forward", false, 0, "PeerError", {"[faults] on purpose"}},
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

// Appends a line to the file $FAULTS_LOG for the harness: "rank time event text", with the time in ns.
void note(const std::string& event, const std::string& text = "") {
  const std::string line = concat(std::getenv("RANK"), ' ', now_ns(), ' ', event, ' ', text, '\n');
  FILE* file = std::fopen(std::getenv("FAULTS_LOG"), "a");
  std::fwrite(line.data(), 1, line.size(), file);
  std::fclose(file);
}

// A pipeline with a linear layer on each rank. Every other seed of four ranks makes two pipelines of two
// stages.
class TrainedPipeline {
 public:
  explicit TrainedPipeline(int64_t seed) {
    const int count = stages(get_world_size(), seed);
    PipelineOptions options{.stages = count, .schedule = Schedule::kZeroBubbleH1, .micro_batch_size = 2};
    for (int s = 0; s + 1 < count; ++s) options.cut_after.push_back("blocks." + std::to_string(s));
    pipe_ = std::make_unique<Pipeline<Blocks>>([count] { return std::make_unique<Blocks>(count); },
                                               zeros({2, 6}), options);
    pipe_->attach(gm_);
    own_ = &pipe_->module().blocks[size_t(get_rank() % count)];
  }
  void step() {
    pipe_->step(gm_, randn({16, 6}), randn({16, 6}), nn::mse_loss);
    for (const Tensor& p : pipe_->parameters()) p.set_grad({});
  }
  void throw_in_forward() { own_->throws = true; }
  static int stages(int world, int64_t seed) { return world == 4 && seed % 2 == 0 ? 2 : world; }

 private:
  struct Block : nn::Layer {
    using Layer::Layer;
    bool throws = false;
    nn::Linear fc{this, "fc", {.in = 6, .out = 6}};
    Tensor forward(const Tensor& x) override {
      if (throws) throw StateError("faults", "on purpose");
      return tanh(fc(x));
    }
  };
  struct Blocks : nn::Layer {
    explicit Blocks(int count) {
      for (int i = 0; i < count; ++i) blocks.add();
    }
    nn::ModuleList<Block> blocks{this, "blocks"};
    Tensor forward(const Tensor& x) override {
      Tensor y = x;
      for (Block& block : blocks) y = block(y);
      return y;
    }
  };

  std::unique_ptr<Pipeline<Blocks>> pipe_;
  Block* own_ = nullptr;
  GradManager gm_;
};

// One step of the endless loop of all ranks: collectives, messages or store operations, by the kind of fault.
void step(const std::string& kind, int i, std::mt19937& random) {
  const int rank = get_rank(), size = get_world_size();
  const int64_t elements = kind == "kill-collective" || kind == "kill-message" ? 1 << (random() % 18) : 16;
  if (kind == "kill-store") {
    Client client = get_client();
    client.user_set(concat("step ", i, " of ", rank), "x");
    client.user_get(concat("step ", i, " of ", (rank + 1) % size));
    if (i % 4 == 3) group_barrier();
    return;
  }
  const Tensor x = full({elements}, rank);
  if (kind == "kill-message") {
    const Tensor y = zeros({elements});
    const Work received = irecv(y, {.src = (rank + size - 1) % size});
    send(x, {.dst = (rank + 1) % size});
    received.wait();
    return;
  }
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
}

// The step of the rank at fault.
void do_fault(const std::string& kind, int64_t seed, TrainedPipeline* pipeline) {
  note("fault");
  if (kind == "exception") throw StateError("faults", "on purpose");
  if (kind == "exit" || kind == "pipeline-exit") {
    const int64_t how = seed % 3;
    if (how == 0) std::exit(0);
    if (how == 1) std::exit(3);
    _exit(0);
  }
  if (kind == "stop" || kind == "pipeline-stop") raise(SIGSTOP);
  if (kind == "other-call") broadcast(full({16}, 1));
  if (kind == "pipeline-forward") pipeline->throw_in_forward(), pipeline->step();
}

int be_rank(const std::string& kind, int victim, int64_t seed) {
  note("start", std::to_string(getpid()));
  std::mt19937 random(static_cast<unsigned>(seed));  // the same on all ranks
  const bool at_fault = std::atoi(std::getenv("RANK")) == victim;
  const int when = kind_named(kind).from_outside ? -1 : int(random() % (is_pipeline(kind) ? 8 : 40));
  try {
    const bool stops = kind.ends_with("stop");
    init_process_group(
        {.timeout = stops ? kStopTimeout : Milliseconds(20'000), .init_timeout = Milliseconds(20'000)});
    std::optional<TrainedPipeline> pipeline;
    if (is_pipeline(kind)) pipeline.emplace(seed);
    note("ready");
    for (int i = 0;; ++i)
      if (at_fault && i == when)
        do_fault(kind, seed, pipeline ? &*pipeline : nullptr);
      else if (pipeline)
        pipeline->step();
      else
        step(kind, i, random);
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
  int rank = -1;
  int64_t time = 0;
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

std::optional<Event> find_event(const std::vector<Event>& events, int rank, const std::string& name) {
  for (const Event& e : events)
    if (e.rank == rank && e.name == name) return e;
  return {};
}

// Returns none if the event does not come in time.
std::optional<Event> wait_for_event(const std::string& log, int rank, const std::string& name) {
  for (int i = 0; i < 20'000; ++i) {
    if (const auto e = find_event(events_in(log), rank, name)) return e;
    usleep(1000);
  }
  return {};
}

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.insert(entry.path().filename());
  return names;
}

struct Figures {
  std::vector<double> errors, launcher;  // seconds
  int wrong = 0;
};

// One job with one fault.
struct Run {
  const Kind& kind;
  int world;
  int64_t seed;
  int victim;
  int64_t fault = 0, end = 0;  // times in ns
  std::vector<Event> events = {};
  std::vector<std::string> wrong = {};

  template <class... Parts> void add(Parts&&... parts) { wrong.push_back(concat(parts...)); }
};

// Adds what is wrong with the errors of the ranks. Returns when the first one came.
int64_t check_errors(Run& run, Figures& figures) {
  const Kind& kind = run.kind;
  const std::string name = concat("rank ", run.victim);
  const bool mismatch = kind.error == std::string("MismatchError");
  std::optional<std::string> common;
  int64_t first = INT64_MAX;
  for (int rank = 0; rank < run.world; ++rank) {
    if (rank == run.victim && !mismatch) continue;
    const auto e = find_event(run.events, rank, "error");
    if (!e) {
      run.add("rank ", rank, " got no error");
      continue;
    }
    first = std::min(first, e->time);
    const double seconds = double(e->time - run.fault) / 1e9;
    figures.errors.push_back(seconds - kind.patience);
    if (seconds > kErrorLimit + kind.patience) run.add("rank ", rank, "'s error took ", seconds, " s");
    std::istringstream words(e->text);
    std::string type, text;
    int named = -1;
    words >> type >> named;
    std::getline(words >> std::ws, text);
    const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
    if (type != kind.error) run.add("rank ", rank, " got a ", type, ": ", text);
    const bool either = mismatch && run.world == 2;  // of two ranks that differ, either may be named
    if (named != run.victim && !either) run.add("rank ", rank, "'s error has rank ", named, ": ", text);
    if (!has(name)) run.add("rank ", rank, "'s error does not name ", name, ": ", text);
    const int stage = run.victim % TrainedPipeline::stages(run.world, run.seed);
    if (kind.name == std::string("pipeline-forward") && !has(concat("in ", stage, 'F')))
      run.add("rank ", rank, "'s error does not name the action: ", text);
    if (std::ranges::none_of(kind.causes, has)) run.add("rank ", rank, "'s error does not say why: ", text);
    if (!mismatch) continue;  // a mismatch has one text on all ranks, after the op
    text = text.substr(text.find(']') + 1);
    if (common && *common != text) run.add("errors differ: ", *common, " and ", text);
    common = text;
  }
  return first;
}

// Kills the victim at a random time. Returns false if the ranks do not begin.
bool kill_victim(Run& run, const std::string& log, std::mt19937& random) {
  const bool early = run.kind.name == std::string("kill-rendezvous");
  const auto start = wait_for_event(log, run.victim, "start");
  if (!start || (!early && !wait_for_event(log, run.victim, "ready"))) return false;
  usleep(useconds_t(random() % (early ? 12'000 : 100'000)));
  run.fault = now_ns();
  kill(std::stoi(start->text), SIGKILL);
  return true;
}

// Returns what was wrong.
std::vector<std::string> run_once(const Kind& kind, int world, int64_t seed, Figures& figures) {
  TestFolder folder;
  const std::string log = folder / "log", temporary = folder / "tmp";
  std::filesystem::create_directory(temporary);
  const std::set<std::string> segments = files_in("/dev/shm");
  std::mt19937 random(static_cast<unsigned>(seed * 7919 + world));
  Run run{.kind = kind, .world = world, .seed = seed, .victim = int(random() % unsigned(world))};
  Subprocess p({std::filesystem::read_symlink("/proc/self/exe"), "--launcher", std::to_string(world),
                kind.name, std::to_string(run.victim), std::to_string(seed)},
               {{"FAULTS_LOG", log}, {"TMPDIR", temporary}});
  if (kind.from_outside && !kill_victim(run, log, random)) {
    p.kill(SIGTERM);
    p.wait();
    return {"the ranks did not begin: " + p.err()};
  }
  const int status = p.wait();
  run.end = now_ns();
  run.events = events_in(log);
  for (const Event& e : run.events)
    if (e.name == "fault") run.fault = e.time;
  if (!run.fault) run.add("the fault did not happen");
  const int64_t first_error = check_errors(run, figures);
  // A stopped rank is detected only at the others' timeout.
  const int64_t known = kind.patience > 0 ? std::min(first_error, run.end) : run.fault;
  figures.launcher.push_back(double(run.end - known) / 1e9);
  if (figures.launcher.back() > kLauncherLimit) run.add("the launcher took ", figures.launcher.back(), " s");
  if (status != 1) run.add("the launcher's status is ", status);
  const std::string shown = p.err().substr(std::min(p.err().find("faults: "), p.err().size()));
  if (shown.substr(0, shown.find('\n')).find(concat("rank ", run.victim)) == std::string::npos)
    run.add("the launcher does not show the first failure");
  if (!p.left().empty()) run.add(p.left().size(), " processes are left");
  if (!files_in(temporary).empty()) run.add("a temporary file is left");
  for (const std::string& s : files_in("/dev/shm"))
    if (!segments.count(s) && s.find("gradus") != std::string::npos) run.add("a segment is left: ", s);
  if (!run.wrong.empty()) run.add("the launcher wrote: ", p.err());
  return run.wrong;
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
        f.wrong += !wrong.empty();
        if (!wrong.empty())
          std::fprintf(stderr, "%s with %d ranks, --seed %ld:\n", kind.name, world, long(seed + i));
        for (const std::string& w : wrong) std::fprintf(stderr, "  %s\n", w.c_str());
      }
      wrong_runs += f.wrong;
      std::printf("%-16s %5d %5d %6d", kind.name, world, repetitions, f.wrong);
      for (std::vector<double>* seconds : {&f.errors, &f.launcher}) {
        if (seconds->empty()) seconds->push_back(0);
        std::ranges::sort(*seconds);
        std::printf("   %10.0f %10.0f", 1e3 * (*seconds)[seconds->size() / 2], 1e3 * seconds->back());
      }
      std::printf("\n");
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
