// Benchmark of data-parallel training steps of the MNIST network or a DCGAN.
//
//   ./run data-parallel               overhead of the all-reduce callback in a group of one rank; and N ranks with
//                                     one thread each against one process with N threads, at equal global batch
//   ./run data-parallel --model dcgan           the same with a DCGAN for 32x32 pixels
//   ./run data-parallel --link 1000   two ranks connected by a link of 1000 Mbit/s between two network namespaces
//                                     (needs root): steps with and without overlap of
//                                     communication and computation
//
// Sides run alternately in the same processes; the order changes every round. Times are those of the slowest rank.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "benchmarks/gan_steps.h"
#include "benchmarks/mnist_step.h"
#include "benchmarks/statistics.h"
#include "gradus/distributed/distributed.h"

namespace gradus::bench {
namespace {

using nlohmann::ordered_json;

struct Args {
  int64_t global_batch = 128, batch = 384;
  int ranks = 2, rounds = 31, steps = 4, link = 0;
  std::string model = "mnist_cnn", json_file;
};

Args parse(int argc, char** argv) {
  Args a;
  CLI::App app("Times data-parallel training steps of the MNIST network, or of a DCGAN.");
  auto* model = app.add_option("--model", a.model, "what to train")
                    ->check(CLI::IsMember({"mnist_cnn", "dcgan"}))
                    ->capture_default_str();
  app.add_option("--ranks", a.ranks, "of one thread each")->check(CLI::Range(2, 64))->capture_default_str();
  app.add_option("--global-batch", a.global_batch, "of all ranks together")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--rounds", a.rounds)->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--steps", a.steps, "in a round, per side")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--link", a.link, "instead: two ranks over a link of so many Mbit/s")
      ->type_name("MBIT")
      ->excludes(model)
      ->check(CLI::Range(1, 100000));
  app.add_option("--batch", a.batch, "with --link: per rank")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--json", a.json_file, "write the figures to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  return a;
}

// ---- measuring ----

struct Side {
  std::string name;
  std::function<void()> step;
  int threads = 0;  // 0: unchanged
};
using Times = std::vector<std::vector<double>>;  // [side][round]: seconds per step

// Returns the maximum over the ranks.
double slowest(double seconds) {
  const Tensor x = tensor({seconds});
  dist::all_reduce(x, {.op = dist::ReduceOp::kMax});
  return x.item<double>();
}

Times measure(const std::vector<Side>& sides, const Args& args) {
  Times times(sides.size());
  for (int round = -1; round < args.rounds; ++round)  // round -1 is a warm-up
    for (size_t i = 0; i < sides.size(); ++i) {
      const size_t side = (size_t(round + 1) + i) % sides.size();
      if (sides[side].threads > 0) set_num_threads(sides[side].threads);
      sides[side].step();
      dist::barrier();
      const double seconds = slowest(seconds_of([&] {
        for (int k = 0; k < args.steps; ++k) sides[side].step();
      }));
      if (round >= 0) times[side].push_back(seconds / args.steps);
    }
  return times;
}

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> r;
  for (size_t i = 0; i < a.size(); ++i) r.push_back(a[i] / b[i]);
  return r;
}

ordered_json report(const std::string& title, const std::vector<Side>& sides, const Times& times) {
  std::printf("%s\n", title.c_str());
  ordered_json row{{"title", title}};
  for (size_t i = 0; i < sides.size(); ++i) {
    std::printf("  %-58s %9.3f ms   (10%% %.3f, 90%% %.3f)\n", sides[i].name.c_str(), 1e3 * median(times[i]),
                1e3 * quantile(times[i], .1), 1e3 * quantile(times[i], .9));
    row["ms"][sides[i].name] = 1e3 * median(times[i]);
  }
  return row;
}

void report_ratio(ordered_json& row, const char* name, const std::vector<double>& ratio) {
  std::printf("  %-58s %9.3f      (10%% %.3f, 90%% %.3f)\n", name, median(ratio), quantile(ratio, .1),
              quantile(ratio, .9));
  row["ratio"][name] = median(ratio);
}

// ---- comparisons ----

template <class Step> std::unique_ptr<Step> make_step(int64_t batch, std::vector<Callback> callbacks = {}) {
  if constexpr (std::is_same_v<Step, DcganStep>)
    return std::make_unique<Step>(DcganStepOptions{.size = 32, .channels = 1, .width = 32, .batch = batch},
                                  callbacks);
  else
    return std::make_unique<Step>(batch, std::move(callbacks));
}

// Measures the overhead of the all-reduce callback in a group of one rank.
template <class Step> ordered_json group_of_one(const Args& args) {
  const auto plain = make_step<Step>(args.global_batch);
  const auto with = make_step<Step>(args.global_batch, {dist::make_allreduce_cb(dist::ReduceOp::kMean)});
  const std::vector<Side> sides = {{"plain step", [&] { plain->run(); }},
                                   {"step with make_allreduce_cb", [&] { with->run(); }}};
  const Times times = measure(sides, args);
  auto row = report(concat("A group of one: batch ", args.global_batch, ", ", num_threads(), " threads"),
                    sides, times);
  report_ratio(row, "with / plain", ratios(times[1], times[0]));
  return row;
}

// Runs on every rank.
template <class Step> ordered_json ranks_against_threads(const Args& args) {
  const int ranks = dist::get_world_size();
  const bool first = dist::get_rank() == 0;
  set_num_threads(1);
  const auto callback = dist::make_allreduce_cb(dist::ReduceOp::kMean);
  const auto shared = make_step<Step>(args.global_batch / ranks, {callback});
  dist::bcast_list_(shared->net());
  const auto noop = make_step<Step>(args.global_batch / ranks);
  const auto alone = first ? make_step<Step>(args.global_batch) : nullptr;
  const std::vector<Side> sides = {
      {concat(ranks, " ranks of 1 thread"), [&] { shared->run(); }, 1},
      {concat("1 process of ", ranks, " threads"),
       [&] {
         if (first) alone->run();
       },
       ranks},
      {concat(ranks, " ranks of 1 thread that do not communicate"), [&] { noop->run(); }, 1}};
  const Times times = measure(sides, args);
  if (!first) return {};
  auto row = report(concat("Ranks against threads: global batch ", args.global_batch), sides, times);
  report_ratio(row, "throughput of the ranks / of the process", ratios(times[1], times[0]));
  report_ratio(row, "what communication adds", ratios(times[0], times[2]));
  std::printf("  communication %.3f ms, of it not hidden %.3f ms, %.2f MB in %d buckets\n",
              1e3 * callback->stats().communication_s, 1e3 * callback->stats().exposed_s,
              1e-6 * double(callback->stats().bytes), callback->stats().buckets);
  return row;
}

// Runs on both ranks.
ordered_json over_link(const Args& args) {
  set_num_threads(1);
  const auto overlapped = dist::make_allreduce_cb(dist::ReduceOp::kMean);
  const auto after = dist::make_allreduce_cb(dist::ReduceOp::kMean, {.overlap = false});
  MnistStep hidden(args.batch, {overlapped}), exposed(args.batch, {after}), alone(args.batch);
  const std::vector<Tensor> gradients = [&] {
    std::vector<Tensor> like;
    for (const Tensor& p : alone.net().parameters()) like.push_back(zeros(p.shape()));
    return like;
  }();
  const std::vector<Side> sides = {
      {"computation alone", [&] { alone.run(); }},
      {"communication alone", [&] { dist::all_reduce_coalesced(gradients, {.op = dist::ReduceOp::kAvg}); }},
      {"step, communication under computation", [&] { hidden.run(); }},
      {"step, communication after computation", [&] { exposed.run(); }}};
  const Times times = measure(sides, args);
  if (dist::get_rank() != 0) return {};
  auto row = report(
      concat("A link of ", args.link, " Mbit/s: batch ", args.batch, " on each of 2 ranks of 1 thread"),
      sides, times);
  std::vector<double> larger;
  for (size_t i = 0; i < times[0].size(); ++i) larger.push_back(std::max(times[0][i], times[1][i]));
  report_ratio(row, "under computation / the larger of the two alone", ratios(times[2], larger));
  report_ratio(row, "after computation / the larger of the two alone", ratios(times[3], larger));
  std::printf("  overlap %.0f %%: communication %.3f ms, of it not hidden %.3f ms\n",
              100 * overlapped->stats().overlap(), 1e3 * overlapped->stats().communication_s,
              1e3 * overlapped->stats().exposed_s);
  return row;
}

// ---- emulation of two hosts by network namespaces ----

// Runs a shell command. Throws if it fails.
void must(const std::string& command) {
  if (std::system((command + " > /dev/null").c_str()) != 0)
    throw StateError("data_parallel", "could not run: ", command, " (network namespaces need root)");
}

// A child process in its own network namespace, which becomes rank `rank` after the parent has created the virtual
// link.
struct Host {
  pid_t pid = -1;
  // Pipes: the child writes 'y' to `ready` if it has a namespace; the parent writes to `go` to start the
  // rank.
  int ready = -1, go = -1;
};

Host start_host(const Args& args, int rank, const std::function<int()>& body) {
  int ready[2], go[2];
  if (pipe(ready) != 0 || pipe(go) != 0) throw StateError("data_parallel", "no pipe");
  std::fflush(stdout);
  Host host{fork(), ready[0], go[1]};
  if (host.pid != 0) {
    close(ready[1]), close(go[0]);
    return host;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 1;
  try {
    char byte = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) _exit(1);
    must("ip link set lo up");
    must(concat("ip addr add 10.79.0.", rank + 1, "/24 dev eth0"));
    must("ip link set eth0 up");
    must(concat("tc qdisc add dev eth0 root tbf rate ", args.link, "mbit burst 256kb latency 50ms"));
    dist::init_process_group(
        {.init_method = "tcp://10.79.0.1:29500", .world_size = 2, .rank = rank, .token = "link"});
    status = body();
    dist::destroy_process_group();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
  }
  std::fflush(stdout);
  _exit(status);
}

// Returns the larger exit status of the two ranks.
int on_two_hosts(const Args& args, const std::function<int()>& body) {
  Host hosts[2];
  for (int rank = 0; rank < 2; ++rank) hosts[rank] = start_host(args, rank, body);
  char byte = 'n';
  for (const Host& host : hosts)
    if (read(host.ready, &byte, 1) != 1 || byte != 'y')
      throw StateError("data_parallel", "no network namespaces here: they need root");
  must(concat("ip link add eth0 netns ", hosts[0].pid, " type veth peer name eth0 netns ", hosts[1].pid));
  int worst = 0;
  for (const Host& host : hosts)
    if (write(host.go, &byte, 1) != 1) worst = 1;
  for (const Host& host : hosts) {
    int status = 0;
    waitpid(host.pid, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

// ---- main ----

void write_json(const Args& args, const ordered_json& rows) {
  if (args.json_file.empty()) return;
  std::ofstream out(args.json_file);
  out << ordered_json{{"rows", rows}}.dump(2) << '\n';
  if (!out.flush()) throw FileError("data_parallel", "cannot write ", args.json_file);
}

template <class Step> void on_one_host(const Args& args) {
  ordered_json rows = ordered_json::array();
  // The launcher starts this program once per rank, so main() also runs in the ranks, which skip this measurement.
  if (!dist::is_launched()) rows.push_back(group_of_one<Step>(args));
  const auto results = dist::launch<std::string>({.nproc_per_node = args.ranks, .threads_per_rank = 1},
                                                 [&] { return ranks_against_threads<Step>(args).dump(); });
  rows.push_back(ordered_json::parse(results[0]));
  write_json(args, rows);
}

int run(const Args& args) {
  manual_seed(1);
  if (args.link > 0)
    return on_two_hosts(args, [&] {
      const ordered_json row = over_link(args);
      if (dist::get_rank() == 0) write_json(args, ordered_json::array({row}));
      return 0;
    });
  if (args.global_batch % args.ranks != 0)
    throw ValueError("data_parallel", "--global-batch must be a multiple of --ranks");
  if (args.model == "dcgan")
    on_one_host<DcganStep>(args);
  else
    on_one_host<MnistStep>(args);
  return 0;
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  try {
    return gradus::bench::run(gradus::bench::parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
