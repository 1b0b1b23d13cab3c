// Benchmark of collectives and messages between processes of this machine, compared with gloo alone.
//
//   ./run collectives                      2, 4 and 8 ranks, with shared memory and with sockets only
//   ./run collectives --ranks 2 --only "all_reduce 25" --rounds 31
//
// Every round runs each side once; the order alternates. A sample is the slowest rank's time for a number of calls
// that take about 20 ms, divided by that number. Ratio: the time of gloo's fastest algorithm in a round, divided
// by Gradus' time. Gradus checks in every call that all ranks make the same call; gloo does not.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/plain_gloo.h"
#include "benchmarks/statistics.h"
#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/launch/launcher.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::bench {
namespace {

constexpr size_t kKiB = 1 << 10, kMiB = 1 << 20;
// Environment variable that the launching process sets for ranks that must not use shared memory.
constexpr const char* kSocketsOnly = "GRADUS_BENCH_SOCKETS_ONLY";

struct Args {
  std::vector<int> ranks = {2, 4, 8};
  int rounds = 21;
  std::string only, mode = "both", json_file;
};

Args parse(int argc, char** argv) {
  Args a;
  CLI::App app("Times collectives and messages against gloo by itself.");
  app.add_option("--ranks", a.ranks, "numbers of ranks")
      ->delimiter(',')
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--rounds", a.rounds)->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--only", a.only, "rows whose name contains this");
  app.add_option("--mode", a.mode,
                 "how Gradus' ranks talk: shared memory, sockets alone, or one after the other")
      ->check(CLI::IsMember({"shared", "sockets", "both"}))
      ->capture_default_str();
  app.add_option("--json", a.json_file, "write the figures to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  return a;
}

// ---- benchmark cases ----

struct Side {
  std::string name;
  std::function<void()> run;  // makes one call, on every rank
};

struct Comparison {
  std::string name;
  size_t bytes = 0;             // size of one rank's tensor
  std::vector<Side> sides;      // Gradus first
  std::function<void()> reset;  // initializes the tensors
  std::function<bool()> right;  // whether the result of one call after reset() is right
};

std::string size_text(size_t bytes) {
  return bytes >= kMiB   ? std::to_string(bytes / kMiB) + " MiB"
         : bytes >= kKiB ? std::to_string(bytes / kKiB) + " KiB"
                         : std::to_string(bytes) + " B";
}

void fill(Tensor& x, float value) { std::fill_n(x.mutable_data<float>(), x.numel(), value); }

bool all_are(const Tensor& x, float value) {
  const float* p = x.data<float>();
  return std::all_of(p, p + x.numel(), [&](float v) { return v == value; });
}

Comparison all_reduce_comparison(PlainGloo& gloo, size_t bytes) {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  Tensor x = zeros({static_cast<int64_t>(bytes / sizeof(float))});
  Comparison c{.name = "all_reduce " + size_text(bytes), .bytes = bytes};
  c.sides.push_back({"gradus", [x] { dist::all_reduce(x); }});
  for (auto& way : gloo.all_reduces(x.mutable_data<float>(), bytes / sizeof(float)))
    c.sides.push_back({way.name, [x, run = std::move(way.run)] { run(); }});
  c.reset = [x, rank]() mutable { fill(x, static_cast<float>(rank + 1)); };
  c.right = [x, size] { return all_are(x, static_cast<float>(size * (size + 1) / 2)); };
  return c;
}

Comparison broadcast_comparison(PlainGloo& gloo, size_t bytes) {
  const int rank = dist::get_rank();
  Tensor x = zeros({static_cast<int64_t>(bytes / sizeof(float))});
  Comparison c{.name = "broadcast " + size_text(bytes), .bytes = bytes};
  c.sides.push_back({"gradus", [x] { dist::broadcast(x); }});
  c.sides.push_back({"gloo", [x, &gloo]() mutable { gloo.broadcast(x.mutable_data<float>(), x.numel()); }});
  c.reset = [x, rank]() mutable { fill(x, rank == 0 ? 7 : 0); };
  c.right = [x] { return all_are(x, 7); };
  return c;
}

Comparison all_gather_comparison(PlainGloo& gloo, size_t bytes) {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  const int64_t n = static_cast<int64_t>(bytes / sizeof(float));
  Tensor x = zeros({n}), all = zeros({size, n});
  Comparison c{.name = "all_gather " + size_text(bytes), .bytes = bytes};
  c.sides.push_back({"gradus", [x, all] { dist::all_gather_into_tensor(all, x); }});
  c.sides.push_back({"gloo", [x, all, n, &gloo]() mutable {
                       gloo.all_gather(x.mutable_data<float>(), n, all.mutable_data<float>());
                     }});
  c.reset = [x, all, rank]() mutable { fill(x, static_cast<float>(rank)), fill(all, -1); };
  c.right = [all, n, size] {
    for (int64_t i = 0; i < n * size; ++i)
      if (all.data<float>()[i] != static_cast<float>(i / n)) return false;
    return true;
  };
  return c;
}

Comparison barrier_comparison(PlainGloo& gloo) {
  Comparison c{.name = "barrier"};
  c.sides.push_back({"gradus", [] { dist::barrier(); }});
  c.sides.push_back({"gloo", [&gloo] { gloo.barrier(); }});
  c.reset = [] {};
  c.right = [] { return true; };
  return c;
}

// Ping-pong between ranks 0 and 1; other ranks do nothing.
Comparison message_comparison(PlainGloo& gloo, size_t bytes) {
  const int rank = dist::get_rank();
  Tensor x = zeros({static_cast<int64_t>(bytes / sizeof(float))});
  Comparison c{.name = "send and back " + size_text(bytes), .bytes = bytes};
  c.sides.push_back({"gradus", [x, rank] {
                       if (rank == 0) dist::send(x, {.dst = 1}), dist::recv(x, {.src = 1});
                       if (rank == 1) dist::recv(x, {.src = 0}), dist::send(x, {.dst = 0});
                     }});
  c.sides.push_back({"gloo", [x, rank, &gloo]() mutable {
                       float* p = x.mutable_data<float>();
                       const size_t n = static_cast<size_t>(x.numel());
                       if (rank == 0) gloo.send(1, p, n), gloo.recv(1, p, n);
                       if (rank == 1) gloo.recv(0, p, n), gloo.send(0, p, n);
                     }});
  c.reset = [x, rank]() mutable { fill(x, rank == 0 ? 7 : 0); };
  c.right = [x, rank] { return rank > 1 || all_are(x, 7); };
  return c;
}

// ---- measuring, on every rank ----

// A side's name, and the seconds per call on this rank in each round.
using SideTimes = std::pair<std::string, std::vector<double>>;
using Row = std::pair<std::pair<std::string, uint64_t>, std::vector<SideTimes>>;  // name, bytes

// Returns the number of calls that take about 20 ms on rank 0, the same number on all ranks.
int calls_of(const Side& side) {
  for (int i = 0; i < 3; ++i) side.run();
  dist::barrier();
  const double seconds = seconds_of([&] {
    for (int i = 0; i < 5; ++i) side.run();
  });
  const double calls = std::clamp(0.02 / (seconds / 5), 1.0, 5000.0);
  return std::stoi(dist::broadcast_object(std::to_string(std::lround(calls))));
}

Row measure(const Comparison& c, int rounds) {
  Row row{{c.name, c.bytes}, {}};
  std::vector<int> calls;
  for (const Side& side : c.sides) {
    c.reset();
    side.run();
    if (!c.right()) throw StateError("collectives", c.name, ": ", side.name, " gave a wrong result");
    dist::barrier();
    calls.push_back(calls_of(side));
    row.second.emplace_back(side.name, std::vector<double>());
  }
  for (int round = -1; round < rounds; ++round)  // round -1 is a warm-up
    for (size_t i = 0; i < c.sides.size(); ++i) {
      const size_t side = (static_cast<size_t>(round + 1) + i) % c.sides.size();
      c.reset();
      dist::barrier();
      const double seconds = seconds_of([&] {
        for (int k = 0; k < calls[side]; ++k) c.sides[side].run();
      });
      if (round >= 0) row.second[side].second.push_back(seconds / calls[side]);
    }
  return row;
}

std::vector<Row> run_rank(const Args& args) {
  const dist::Client client = dist::get_client();
  PlainGloo gloo(dist::get_rank(), dist::get_world_size(), client.store());
  std::vector<std::function<Comparison()>> comparisons;
  for (const size_t bytes : {4 * kKiB, 256 * kKiB, 25 * kMiB})
    comparisons.push_back([&gloo, bytes] { return all_reduce_comparison(gloo, bytes); });
  for (const size_t bytes : {4 * kKiB, 25 * kMiB})
    comparisons.push_back([&gloo, bytes] { return broadcast_comparison(gloo, bytes); });
  for (const size_t bytes : {4 * kKiB, 4 * kMiB})
    comparisons.push_back([&gloo, bytes] { return all_gather_comparison(gloo, bytes); });
  comparisons.push_back([&gloo] { return barrier_comparison(gloo); });
  for (const size_t bytes : {size_t(4), 25 * kMiB})
    comparisons.push_back([&gloo, bytes] { return message_comparison(gloo, bytes); });

  std::vector<Row> rows;
  for (const auto& make : comparisons) {
    const Comparison c = make();
    if (c.name.find(args.only) != c.name.npos) rows.push_back(measure(c, args.rounds));
  }
  return rows;
}

// ---- results ----

// Returns the slowest rank's time per round.
std::vector<double> slowest(const std::vector<std::vector<Row>>& ranks, size_t row, size_t side) {
  std::vector<double> times = ranks[0][row].second[side].second;
  for (const auto& rows : ranks)
    for (size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], rows[row].second[side].second[i]);
  return times;
}

std::string time_text(double seconds) {
  char text[32];
  if (seconds < 1e-3)
    std::snprintf(text, sizeof text, "%.1f us", 1e6 * seconds);
  else
    std::snprintf(text, sizeof text, "%.2f ms", 1e3 * seconds);
  return text;
}

// Prints one table, and adds its rows to the JSON. gloo has a function with options, and older classes that are
// prepared for one buffer; each of the two is represented by its fastest algorithm. The second column of
// Gradus is its rate: bytes of one rank's tensor / time.
void report(int ranks, bool sockets_only, const std::vector<std::vector<Row>>& results,
            nlohmann::json& json) {
  std::printf("\n%d ranks, %-22s %10s %10s  %-27s %9s  %s\n", ranks,
              sockets_only ? "sockets alone" : "shared memory", "Gradus", "gloo", "ratio (10 %..90 %)",
              "Gradus", "gloo's algorithm");
  for (size_t row = 0; row < results[0].size(); ++row) {
    const auto& [about, sides] = results[0][row];
    const std::vector<double> gradus_times = slowest(results, row, 0);
    std::map<bool, size_t> best;  // is prepared -> index of the fastest side
    for (size_t side = 1; side < sides.size(); ++side) {
      const auto [it, first] = best.emplace(sides[side].first.starts_with("prepared "), side);
      if (!first && median(slowest(results, row, side)) < median(slowest(results, row, it->second)))
        it->second = side;
    }
    for (const auto& [prepared, side] : best) {
      const std::vector<double> peer_times = slowest(results, row, side);
      std::vector<double> ratio;
      for (size_t i = 0; i < gradus_times.size(); ++i) ratio.push_back(peer_times[i] / gradus_times[i]);
      char range[32], rate[32] = "";
      std::snprintf(range, sizeof range, "%.2f (%.2f..%.2f)", median(ratio), quantile(ratio, .1),
                    quantile(ratio, .9));
      if (about.second >= kMiB)
        std::snprintf(rate, sizeof rate, "%.2f GB/s",
                      1e-9 * static_cast<double>(about.second) / median(gradus_times));
      std::printf("  %-30s %10s %10s  %-27s %9s  %s\n", about.first.c_str(),
                  time_text(median(gradus_times)).c_str(), time_text(median(peer_times)).c_str(), range, rate,
                  sides[side].first.c_str());
      json.push_back({{"name", about.first},
                      {"ranks", ranks},
                      {"shared_memory", !sockets_only},
                      {"gradus", median(gradus_times)},
                      {"peer", median(peer_times)},
                      {"peer_name", sides[side].first},
                      {"unit", "s"},
                      {"ratio", median(ratio)},
                      {"ratio_10", quantile(ratio, .1)},
                      {"ratio_90", quantile(ratio, .9)},
                      {"runs", gradus_times.size()}});
    }
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const Args args = parse(argc, argv);
  const bool is_rank = dist::is_launched();
  if (!is_rank) {
    std::string command = "./run collectives";
    for (int i = 1; i < argc; ++i) command += concat(' ', argv[i]);
    std::printf("%s\n%d usable cores\n", command.c_str(), usable_cores());
  } else if (std::getenv(kSocketsOnly)) {
    // Makes each rank count as a separate host, which disables shared memory.
    setenv("GRADUS_HOST_ID", std::getenv("RANK"), 1);
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const bool sockets_only : {false, true})
    for (const int ranks : args.ranks) {
      if (args.mode == (sockets_only ? "shared" : "sockets")) continue;
      if (!is_rank) sockets_only ? setenv(kSocketsOnly, "1", 1) : unsetenv(kSocketsOnly);
      // The launched processes run main(), too: each skips the launches before its own.
      const auto results =
          dist::launch<std::vector<Row>>({.nproc_per_node = ranks}, [&] { return run_rank(args); });
      if (!is_rank) report(ranks, sockets_only, results, rows);
    }
  if (!args.json_file.empty()) {
    std::ofstream out(args.json_file);
    out << nlohmann::json{{"rows", rows}}.dump(2) << "\n";
    if (!out.flush()) throw FileError("collectives", "cannot write ", args.json_file);
  }
  return 0;
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  try {
    return gradus::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
