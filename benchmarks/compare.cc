// Compares Gradus with LibTorch: alternating runs, the same threads, medians and ratios.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "benchmarks/contest.h"
#include "benchmarks/machine_peak.h"
#include "benchmarks/statistics.h"

namespace gradus::bench {
namespace {

const char* const kWorkloads[] = {
    "mnist_cnn train step, batch 64",
    "mnist_cnn train step, batch 64, channels-last peer",
    "add of 1-element tensors",
    "add of 1-element tensors, recorded",
    "matmul 1024",
    "matmul 64x9216x128",
    "conv 64x32x26, 64 3x3",
    "conv 64x32x26, 64 3x3, and gradients",
    "conv 16x256x14, 256 3x3",
    "conv 16x256x14, 256 3x3, and gradients",
    "softmax 4096x1000",
    "sum of 16M",
    "sum over rows 65536x256",
    "add of 16M",
    "exp of 16M",
};

struct Row {
  std::string name, unit;
  double gradus = 0, peer = 0, ratio = 0, low = 0, high = 0;
  int runs = 0;
  std::string of_peak;  // Gradus's share of what the machine can do
};

// Times both sides in turn. The first of a pair changes from round to round.
Row contest(const std::string& name, int threads, int rounds, const MachinePeak& peak) {
  Workload mine = make_gradus_workload(name, threads), theirs = make_libtorch_workload(name, threads);
  for (int i = 0; i < 3; ++i) mine.run(), theirs.run();
  std::vector<double> a, b, ratios;
  // Samples of at least 20 ms: short work is repeated.
  const int times = std::max(1, static_cast<int>(0.02 / seconds_of(theirs.run)));
  auto sample = [&](const Workload& w) {
    return seconds_of([&] {
             for (int i = 0; i < times; ++i) w.run();
           }) /
           times / w.repetitions;
  };
  for (int r = 0; r < rounds; ++r) {
    double x = 0, y = 0;
    if (r % 2) x = sample(mine), y = sample(theirs);
    else y = sample(theirs), x = sample(mine);
    a.push_back(x), b.push_back(y), ratios.push_back(y / x);
  }
  Row row{name, mine.unit};
  const double scale = mine.unit == "ms" ? 1e3 : 1e9;
  row.gradus = scale * median(a);
  row.peer = scale * median(b);
  row.ratio = median(ratios);
  row.low = quantile(ratios, .1);
  row.high = quantile(ratios, .9);
  row.runs = rounds;
  char text[64] = "";
  if (mine.flops > 0)
    std::snprintf(text, sizeof text, "%.0f GFLOP/s, %.0f%% of peak", mine.flops / median(a) * 1e-9,
                  100 * mine.flops / median(a) / peak.flops);
  if (mine.bytes > 0)
    std::snprintf(text, sizeof text, "%.1f GB/s, %.0f%% of peak", mine.bytes / median(a) * 1e-9,
                  100 * mine.bytes / median(a) / peak.bytes_per_second);
  row.of_peak = text;
  return row;
}

// Peak resident memory, in MiB, of a process that runs one side's training step alone.
double resident_mib(bool mine, int threads, int steps) {
  const pid_t child = fork();
  if (child == 0) {
    Workload w = (mine ? make_gradus_workload : make_libtorch_workload)(kWorkloads[0], threads);
    for (int i = 0; i < steps; ++i) w.run();
    _exit(0);
  }
  int status = 0;
  rusage usage{};
  if (child < 0 || wait4(child, &status, 0, &usage) < 0 || status != 0) return 0;
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

int run(int argc, char** argv) {
  std::string json_file, only;
  int threads = 0, rounds = 31;
  CLI::App app("Compares Gradus with LibTorch in one process, in alternating runs.");
  app.add_option("--threads", threads, "0: all cores")->capture_default_str();
  app.add_option("--rounds", rounds, "pairs of runs of each workload")->check(CLI::Range(3, 10000))->capture_default_str();
  app.add_option("--only", only, "workloads whose name contains this");
  app.add_option("--json", json_file, "write the rows to this file");
  CLI11_PARSE(app, argc, argv);
  if (threads <= 0) threads = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));

  std::vector<Row> rows;
  Row row{"mnist_cnn train step, peak resident memory", "MiB"};
  if (row.name.find(only) != std::string::npos) {  // in children of this still single-threaded process
    row.gradus = resident_mib(true, threads, 20);
    row.peer = resident_mib(false, threads, 20);
    row.ratio = row.low = row.high = row.peer / row.gradus;
    row.runs = 1;
    rows.push_back(row);
  }
  const MachinePeak peak = measure_machine_peak(threads);
  std::printf("%d threads; the machine's measured peak: %.0f GFLOP/s f32, %.1f GB/s\n\n", threads, peak.flops * 1e-9,
              peak.bytes_per_second * 1e-9);
  std::printf("%-52s %11s %11s %-4s %7s %15s  %s\n", "", "Gradus", "LibTorch", "", "ratio", "10%..90%", "Gradus alone");
  auto print = [](const Row& r) {
    std::printf("%-52s %11.3f %11.3f %-4s %6.2fx %6.2fx..%5.2fx  %s\n", r.name.c_str(), r.gradus, r.peer, r.unit.c_str(), r.ratio,
                r.low, r.high, r.of_peak.c_str());
    std::fflush(stdout);
  };
  for (const Row& r : rows) print(r);
  for (const char* name : kWorkloads) {
    if (std::string(name).find(only) == std::string::npos) continue;
    rows.push_back(contest(name, threads, rounds, peak));
    print(rows.back());
  }
  std::printf("\nratio: LibTorch's figure divided by Gradus's, median over pairs of runs; above 1 Gradus is better\n");

  if (!json_file.empty()) {
    nlohmann::json all = nlohmann::json::array();
    for (const Row& r : rows)
      all.push_back({{"name", r.name}, {"gradus", r.gradus}, {"peer", r.peer}, {"peer_name", "LibTorch"}, {"unit", r.unit},
                     {"ratio", r.ratio}, {"ratio_10", r.low}, {"ratio_90", r.high}, {"runs", r.runs}});
    std::ofstream out(json_file);
    out << nlohmann::json{{"threads", threads}, {"peak_gflops", peak.flops * 1e-9},
                          {"peak_gb_per_second", peak.bytes_per_second * 1e-9}, {"rows", all}}.dump(2) << "\n";
    if (!out.flush()) throw std::runtime_error("cannot write " + json_file);
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
