// The benchmark cases of `./run pipeline`: measured and predicted values, with limits of their ratio.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/statistics.h"
#include "gradus/gradus.h"

namespace gradus::bench {

struct PipelineArgs {
  std::vector<int> ranks;
  std::vector<std::string> schedules;
  std::vector<int> micro_batches;
  std::vector<std::string> models;
  int rounds = 0;
  bool reports = false;  // prints a PipelineReport for each model
};

// A measured value, and the value that a simulation or a reference predicts (theory).
struct PipelineCase {
  enum Condition { kAtMost, kAtLeast, kWithin };  // condition for the ratio; kWithin: |ratio - 1| <= limit
  std::string name, unit;
  double measured = 0, theory = 0;
  double ratio = 0;  // measured / theory, or the median of this ratio over rounds
  Condition condition = kAtMost;
  double limit = 0;  // 0: no condition

  bool is_met() const {
    return limit == 0 || (condition == kAtMost    ? ratio <= limit
                          : condition == kAtLeast ? ratio >= limit
                                                  : std::abs(ratio - 1) <= limit);
  }
};

// Prints a line per case and collects the cases for a JSON file, on the first rank only.
class PipelineCases {
 public:
  void title(const std::string& text);
  void add(const PipelineCase& c);
  const nlohmann::ordered_json& rows() const { return rows_; }

 private:
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

// Returns whether the benchmark runs the schedule with two stages per rank.
bool has_two_stages_per_rank(dist::Schedule schedule);

// Benchmarks that run on all ranks of a job.
void sleeping_stages(const PipelineArgs& args, PipelineCases& cases);
void speed_of_models(const PipelineArgs& args, PipelineCases& cases);
void memory_of_ranks(const PipelineArgs& args, PipelineCases& cases);
void choices_of_pipelines(const PipelineArgs& args, PipelineCases& cases);
// A benchmark that runs in a single process.
void pipeline_of_one_rank(const PipelineArgs& args, PipelineCases& cases);

// Returns the report of each recorded step, on the first rank.
template <class P> std::vector<dist::PipelineReport> step_reports(P& pipe) {
  std::vector<dist::PipelineReport> reports;
  if (const auto record = pipe.gather_records())
    for (size_t i = 0; i < record->ranks[0].steps.size(); ++i) {
      dist::PipelineRecord step = *record;
      for (dist::RankRecord& r : step.ranks) r.steps = {r.steps[i]};
      reports.push_back(make_report(step));
    }
  return reports;
}

// Returns the median of number(report) over the reports.
template <class F> double median_of(const std::vector<dist::PipelineReport>& reports, const F& number) {
  std::vector<double> numbers;
  for (const auto& r : reports) numbers.push_back(number(r));
  return median(numbers);
}

}  // namespace gradus::bench
