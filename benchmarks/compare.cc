// `./run bench`: benchmark of Gradus against LibTorch and oneDNN on the workloads of benchmarks/ops. Both
// sides run alternately with the same number of threads; the report has medians and ratios. Training steps
// are also compared by peak memory.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/machine_peak.h"
#include "benchmarks/neighbor.h"
#include "benchmarks/statistics.h"
#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

// A line of the report. low, high: the 10 % and 90 % quantiles of the ratio LibTorch / Gradus.
struct Row {
  std::string family, name, unit;
  double gradus = 0, peer = 0, ratio = 0, low = 0, high = 0;
  int runs = 0;
  double of_bandwidth = 0,
         of_onednn = 0;  // Gradus' rate relative to memory bandwidth, or to oneDNN; 0: not measured
  double times_f32 = 0;  // speedup over the same workload in f32; 0: not measured
  std::string alone;     // text of the last column
};

// Measures the seconds per repetition of a workload in samples of at least 20 ms.
class TimedWorkload {
 public:
  explicit TimedWorkload(Workload w) : w_(std::move(w)) {
    for (int i = 0; i < 2; ++i) w_.run();
    runs_per_sample_ = std::max(1, static_cast<int>(0.02 / seconds_of(w_.run)));
    first_sample_ = sample();
  }
  double sample() const {
    return seconds_of([&] {
             for (int i = 0; i < runs_per_sample_; ++i) w_.run();
           }) /
           runs_per_sample_ / w_.repetitions;
  }
  double first_sample() const { return first_sample_; }
  const Workload& workload() const { return w_; }

 private:
  Workload w_;
  int runs_per_sample_ = 1;
  double first_sample_ = 0;
};

// Returns a side's fastest variant of workload `name`; null if there is none.
std::unique_ptr<TimedWorkload> fastest(Side side, const std::string& name) {
  std::unique_ptr<TimedWorkload> best;
  for (const auto& [family, entry] : workloads(side)) {
    if (entry.name != name) continue;
    auto candidate = std::make_unique<TimedWorkload>(entry.make());
    if (!best || candidate->first_sample() < best->first_sample()) best = std::move(candidate);
  }
  return best;
}

// Times all sides in every round. The order of Gradus and LibTorch alternates.
Row compare(const std::string& family, const Entry& entry, int threads, int rounds) {
  const TimedWorkload gradus(entry.make());
  const auto libtorch = fastest(Side::kLibTorch, entry.name), onednn = fastest(Side::kOneDNN, entry.name);
  const auto f32 = fastest(Side::kGradusF32, entry.name);
  std::vector<double> a, b, ratios, onednn_ratios, f32_ratios;
  for (int r = 0; r < rounds; ++r) {
    double x = 0, y = 0;
    if (r % 2)
      x = gradus.sample(), y = libtorch ? libtorch->sample() : x;
    else
      y = libtorch ? libtorch->sample() : 0, x = gradus.sample();
    if (!libtorch) y = x;
    a.push_back(x), b.push_back(y), ratios.push_back(y / x);
    if (onednn) onednn_ratios.push_back(onednn->sample() / x);
    if (f32) f32_ratios.push_back(f32->sample() / x);
  }
  const Workload& w = gradus.workload();
  Row row{family, entry.name, w.unit};
  const double scale = w.unit == "ms" ? 1e3 : 1e9;
  row.gradus = scale * median(a);
  if (libtorch) {
    row.peer = scale * median(b);
    row.ratio = median(ratios), row.low = quantile(ratios, .1), row.high = quantile(ratios, .9);
  }
  row.runs = rounds;
  char text[96] = "";
  if (w.flops > 0) std::snprintf(text, sizeof text, "%.0f GFLOP/s", w.flops / median(a) * 1e-9);
  if (w.reads + w.writes > 0) {
    const double rate = (w.reads + w.writes) / median(a);
    row.of_bandwidth = rate / peak_bandwidth(threads, w.reads, w.writes);
    std::snprintf(text, sizeof text, "%.1f GB/s, %.0f%% of memory", rate * 1e-9, 100 * row.of_bandwidth);
  }
  row.alone = text;
  if (onednn) {
    row.of_onednn = median(onednn_ratios);
    std::snprintf(text, sizeof text, "%s%.0f%% of oneDNN", row.alone.empty() ? "" : ", ",
                  100 * row.of_onednn);
    row.alone += text;
  }
  if (f32) {
    row.times_f32 = median(f32_ratios);
    std::snprintf(text, sizeof text, "%s%.2fx its f32 (%.2fx..%.2fx)", row.alone.empty() ? "" : ", ",
                  row.times_f32, quantile(f32_ratios, .1), quantile(f32_ratios, .9));
    row.alone += text;
  }
  return row;
}

// Returns the peak resident memory in MiB of a child process that runs 8 training steps, or at least 3 steps if
// they take more than 10 s.
double resident_mib(Side side, const Entry& entry, int threads) {
  const pid_t child = fork();
  if (child == 0) {
    (side == Side::kGradus ? set_up_gradus : set_up_libtorch)(threads);
    const Workload w = entry.make();
    double seconds = 0;
    for (int i = 0; i < 8 && (i < 3 || seconds < 10); ++i) seconds += seconds_of(w.run);
    _exit(0);
  }
  int status = 0;
  rusage usage{};
  if (child < 0 || wait4(child, &status, 0, &usage) < 0 || status != 0) return 0;
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Compares the memory of training steps with that of LibTorch's variant with the least memory.
Row compare_memory(const std::string& family, const Entry& entry, const std::string& name, int threads) {
  Row row{family, name, "MiB"};
  row.gradus = resident_mib(Side::kGradus, entry, threads);
  for (const auto& [other, libtorch] : workloads(Side::kLibTorch)) {
    if (libtorch.name != entry.name) continue;
    const double mib = resident_mib(Side::kLibTorch, libtorch, threads);
    if (row.peer == 0 || mib < row.peer) row.peer = mib;
  }
  row.ratio = row.low = row.high = row.peer / row.gradus;
  row.runs = 1;
  return row;
}

// Times training steps beside a busy process, for Gradus and LibTorch's variant that is fastest without it.
void report_neighbor(const std::vector<Entry>& entries, int threads, int rounds) {
  std::printf("%d threads, alone and beside a process that keeps one core busy\n\n", threads);
  std::printf("%-40s %-9s %10s %10s %8s %15s\n", "", "", "alone ms", "beside ms", "slower", "10%..90%");
  const auto print = [](const Entry& e, const char* side, const NeighborTimes& b) {
    std::printf("%-40s %-9s %10.3f %10.3f %7.2fx %6.2fx..%5.2fx\n", e.name.c_str(), side, 1e3 * b.quiet,
                1e3 * b.busy, b.ratio, b.low, b.high);
    std::fflush(stdout);
  };
  for (const Entry& gradus : entries) {
    print(gradus, "Gradus", time_beside_busy_process(Side::kGradus, gradus, threads, rounds));
    NeighborTimes best;
    for (const auto& [family, libtorch] : workloads(Side::kLibTorch)) {
      if (libtorch.name != gradus.name) continue;
      const NeighborTimes b = time_beside_busy_process(Side::kLibTorch, libtorch, threads, rounds);
      if (best.quiet == 0 || b.quiet < best.quiet) best = b;
    }
    if (best.quiet > 0) print(gradus, "LibTorch", best);
  }
}

int run(int argc, char** argv) {
  std::string json_file, only;
  std::vector<std::string> families;
  int threads = 0, rounds = 15;
  bool list = false, neighbor = false;
  CLI::App app("Compares Gradus with LibTorch in one process, in alternating runs.");
  app.add_option("--threads", threads, "0: all cores")->capture_default_str();
  app.add_option("--rounds", rounds, "pairs of runs of each workload")
      ->check(CLI::Range(3, 10000))
      ->capture_default_str();
  app.add_option("--only", only, "workloads whose name contains this");
  app.add_option("--family", families, "families of workloads; all when none is named");
  app.add_flag("--list", list, "name the workloads");
  auto* beside =
      app.add_flag("--neighbor", neighbor, "instead: training steps in f32, alone and beside a busy process");
  app.add_option("--json", json_file, "write the rows to this file")->excludes(beside);
  CLI11_PARSE(app, argc, argv);
  if (threads <= 0) threads = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));

  const auto wanted = [&](const std::string& family, const std::string& name) {
    return name.find(only) != std::string::npos &&
           (families.empty() || std::find(families.begin(), families.end(), family) != families.end());
  };
  if (list) {
    for (const auto& [family, entry] : workloads(Side::kGradus))
      if (wanted(family, entry.name)) std::printf("%-12s %s\n", family.c_str(), entry.name.c_str());
    return 0;
  }

  if (neighbor) {
    std::vector<Entry> steps;
    for (const auto& [family, entry] : workloads(Side::kGradus))
      if (wanted(family, entry.name) && entry.name.find("train step") != std::string::npos &&
          entry.name.find("bf16") == std::string::npos)
        steps.push_back(entry);
    report_neighbor(steps, threads, rounds);
    return 0;
  }

  std::vector<Row> rows;
  for (const auto& [family, entry] :
       workloads(Side::kGradus)) {  // measured in child processes, forked while this process has one thread
    const std::string name = entry.name + ", peak resident memory";
    if (entry.name.find("train step") != std::string::npos && wanted(family, name))
      rows.push_back(compare_memory(family, entry, name, threads));
  }
  set_up_gradus(threads);
  set_up_libtorch(threads);
  const double flops = peak_flops(threads);
  std::printf(
      "%d threads; the machine's measured peak: %.0f GFLOP/s f32, %.1f GB/s reading, %.1f GB/s copying\n\n",
      threads, flops * 1e-9, peak_bandwidth(threads, 1, 0) * 1e-9, peak_bandwidth(threads, 1, 1) * 1e-9);
  std::printf("%-56s %11s %11s %-4s %7s %15s  %s\n", "", "Gradus", "LibTorch", "", "ratio", "10%..90%",
              "Gradus alone");
  auto print = [](const Row& r) {
    std::printf("%-56s %11.3f %11.3f %-4s %6.2fx %6.2fx..%5.2fx  %s\n", r.name.c_str(), r.gradus, r.peer,
                r.unit.c_str(), r.ratio, r.low, r.high, r.alone.c_str());
    std::fflush(stdout);
  };
  for (const Row& r : rows) print(r);
  for (const auto& [family, entry] : workloads(Side::kGradus)) {
    if (!wanted(family, entry.name)) continue;
    rows.push_back(compare(family, entry, threads, rounds));
    print(rows.back());
  }
  const auto report = [&](const char* what, auto below) {
    std::string names;
    for (const Row& r : rows)
      if (below(r)) names += "\n  " + r.name;
    if (!names.empty()) std::printf("%s:%s\n", what, names.c_str());
  };
  std::printf("\n");
  report("slower than LibTorch by more than 5 %", [](const Row& r) { return r.peer > 0 && r.ratio < 0.95; });
  report("below 80 % of the memory's bandwidth",
         [](const Row& r) { return r.of_bandwidth > 0 && r.of_bandwidth < 0.8; });
  report("below 90 % of oneDNN alone", [](const Row& r) { return r.of_onednn > 0 && r.of_onednn < 0.9; });
  std::printf(
      "\nratio: LibTorch's figure divided by Gradus's, median over pairs of runs; above 1 Gradus is "
      "better\n");

  if (!json_file.empty()) {
    nlohmann::json all = nlohmann::json::array();
    for (const Row& r : rows)
      all.push_back({{"family", r.family},
                     {"name", r.name},
                     {"gradus", r.gradus},
                     {"peer", r.peer},
                     {"peer_name", "LibTorch"},
                     {"unit", r.unit},
                     {"ratio", r.ratio},
                     {"ratio_10", r.low},
                     {"ratio_90", r.high},
                     {"runs", r.runs},
                     {"of_bandwidth", r.of_bandwidth},
                     {"of_onednn", r.of_onednn},
                     {"times_f32", r.times_f32}});
    std::ofstream out(json_file);
    out << nlohmann::json{{"threads", threads},
                          {"peak_gflops", flops * 1e-9},
                          {"peak_gb_per_second", peak_bandwidth(threads, 1, 1) * 1e-9},
                          {"rows", all}}
               .dump(2)
        << "\n";
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
