// Benchmark of pipeline parallelism, compared with a simulation of the schedule (dist::simulate).
//
//   ./run pipeline                 models in two processes with one thread each; a pipeline of one rank
//   ./run pipeline --sleep         only the executor: stages that sleep, in 2, 4 and 8 processes
//   ./run pipeline --memory        peak memory of each of four processes
//   ./run pipeline --choices       automatic choices against the optimum; overhead of recording steps
//   ./run pipeline --models gpt --schedules 1f1b,zb-h1 --micro-batches 4,16 --rounds 11 --json figures.json
//
// Output: one line per case, with the measured and the predicted value, their ratio, and whether the ratio is
// within its limit. In names of cases, M is the number of micro-batches. Times are medians over rounds. Each
// round runs the sides alternately and measures the times of stages again.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>

#include "benchmarks/pipeline_cases.h"
#include "benchmarks/pipeline_models.h"

namespace gradus::bench {

using nlohmann::ordered_json;

bool has_two_stages_per_rank(dist::Schedule s) {
  return s == dist::Schedule::kInterleaved1F1B || s == dist::Schedule::kLoopedBreadthFirst ||
         s == dist::Schedule::kZeroBubbleV;
}

void PipelineCases::title(const std::string& text) {
  if (dist::get_rank() > 0) return;
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void PipelineCases::add(const PipelineCase& c) {
  if (dist::get_rank() > 0) return;
  static constexpr const char* kConditions[] = {"at most ", "at least ", "1 within "};
  std::printf("  %-48s %10.3f %-2s  of %10.3f %-2s  ratio %.3f", c.name.c_str(), c.measured, c.unit.c_str(),
              c.theory, c.unit.c_str(), c.ratio);
  if (c.limit > 0)
    std::printf("  %s%.2f: %s", kConditions[c.condition], c.limit, c.is_met() ? "met" : "MISSED");
  std::printf("\n");
  std::fflush(stdout);
  ordered_json row{{"name", c.name},     {"unit", c.unit},   {"measured", c.measured},
                   {"theory", c.theory}, {"ratio", c.ratio}, {"ranks", dist::get_world_size()}};
  if (c.limit > 0) row["bar"] = concat(kConditions[c.condition], c.limit), row["met"] = c.is_met();
  rows_.push_back(row);
}

namespace {

struct Args : PipelineArgs {
  bool sleep = false, memory = false, choices = false;
  std::string json_file;
};

Args parse(int argc, char** argv) {
  const std::vector<std::string> schedules = {
      "gpipe", "gpipe-lifo", "1f1b", "1f1b-slow-links", "interleaved-1f1b", "looped-breadth-first",
      "zb-h1", "zb-v"};
  Args a;
  CLI::App app("Measures pipelines against theory.");
  auto* sleep = app.add_flag("--sleep", a.sleep, "the executor alone, with stages that sleep");
  auto* memory = app.add_flag("--memory", a.memory, "what each process holds")->excludes(sleep);
  app.add_flag("--choices", a.choices, "what pipelines choose by measuring, and what recording costs")
      ->excludes(sleep)
      ->excludes(memory);
  app.add_flag("--reports", a.reports, "print where the time of the models' steps went");
  app.add_option("--ranks", a.ranks, "numbers of processes")->delimiter(',')->check(CLI::Range(2, 64));
  app.add_option("--schedules", a.schedules)->delimiter(',')->check(CLI::IsMember(schedules));
  app.add_option("--micro-batches", a.micro_batches)->delimiter(',')->check(CLI::Range(1, 1024));
  app.add_option("--models", a.models)->delimiter(',')->check(CLI::IsMember(pipeline_model_names()));
  app.add_option("--rounds", a.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--json", a.json_file, "write the figures to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  if (a.ranks.empty()) a.ranks = a.sleep ? std::vector{2, 4, 8} : std::vector{a.memory ? 4 : 2};
  if (a.micro_batches.empty()) a.micro_batches = a.sleep ? std::vector{8, 32} : std::vector{4, 16};
  if (a.models.empty()) a.models = pipeline_model_names();
  if (a.rounds == 0) a.rounds = a.sleep ? 3 : 7;
  if (a.schedules.empty())
    a.schedules =
        a.memory ? std::vector<std::string>{"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"} : schedules;
  return a;
}

int run(const Args& args) {
  const bool is_rank = dist::is_launched();
  manual_seed(1);
  ordered_json rows = ordered_json::array();
  const auto append = [&](const ordered_json& more) { rows.insert(rows.end(), more.begin(), more.end()); };
  if (!args.sleep && !args.memory && !args.choices && !is_rank) {
    PipelineCases cases;
    pipeline_of_one_rank(args, cases);
    append(cases.rows());
  }
  for (const int ranks : args.ranks) {
    const auto results = dist::launch<std::string>({.nproc_per_node = ranks, .threads_per_rank = 1}, [&] {
      PipelineCases cases;
      (args.sleep     ? sleeping_stages
       : args.memory  ? memory_of_ranks
       : args.choices ? choices_of_pipelines
                      : speed_of_models)(args, cases);
      return cases.rows().dump();
    });
    append(ordered_json::parse(results[0]));
  }
  if (!args.json_file.empty()) {
    std::ofstream out(args.json_file);
    out << ordered_json{{"rows", rows}}.dump(2) << '\n';
    if (!out.flush()) throw FileError("pipeline", "cannot write ", args.json_file);
  }
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
