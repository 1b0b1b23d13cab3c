// What `./run pipeline` measures: cases beside their theory, each with a bar.
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
  bool reports = false;  // prints where the time of the models' steps went
};

struct PipelineCase {
  enum Bar { kAtMost, kAtLeast, kWithin };  // of the ratio; kWithin: at most `limit` from 1
  std::string name, unit;
  double measured = 0, theory = 0;
  double ratio = 0;
  Bar bar = kAtMost;
  double limit = 0;  // 0: no bar

  bool is_met() const {
    return limit == 0 || (bar == kAtMost    ? ratio <= limit
                          : bar == kAtLeast ? ratio >= limit
                                            : std::abs(ratio - 1) <= limit);
  }
};

// Prints a line for each case and keeps it for a file. Does nothing on other ranks than the first.
class PipelineCases {
 public:
  void title(const std::string& text);
  void add(const PipelineCase& c);
  const nlohmann::ordered_json& rows() const { return rows_; }

 private:
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

bool loops(dist::Schedule schedule);  // has two stages per rank here

// Run on each rank of a job.
void sleeping_stages(const PipelineArgs& args, PipelineCases& cases);
void speed_of_models(const PipelineArgs& args, PipelineCases& cases);
void memory_of_ranks(const PipelineArgs& args, PipelineCases& cases);
void choices_of_pipelines(const PipelineArgs& args, PipelineCases& cases);
// Runs in a process alone.
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

// Returns the median of a number of the reports.
template <class F> double median_of(const std::vector<dist::PipelineReport>& reports, const F& number) {
  std::vector<double> numbers;
  for (const auto& r : reports) numbers.push_back(number(r));
  return median(numbers);
}

}  // namespace gradus::bench
