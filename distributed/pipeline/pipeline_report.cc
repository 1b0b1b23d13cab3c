// make_report: splits the measured time of each rank of a pipeline into busy, fill, drain, waiting for the
// sender, communication and overhead, averages over the recorded steps, and simulates the same actions with
// the mean times of each stage. Records are in nanoseconds on one clock, reports in seconds. The ranks are
// ordered by replica, as in PipelineRecord.
#include "gradus/distributed/pipeline/pipeline_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <span>
#include <tuple>

#include "gradus/tensor/base/error.h"

namespace gradus::dist {
namespace {

constexpr auto kOp = "make_report";

double seconds(int64_t ns) { return 1e-9 * double(ns); }

// Returns the field for the time of actions of this kind. The order is that of ActionKind.
double StageReport::*time_of(ActionKind kind) {
  constexpr std::array kTimes = {&StageReport::forward, &StageReport::backward, &StageReport::input_gradient,
                                 &StageReport::weight_gradient};
  return kTimes.at(size_t(kind));
}

// Returns the mean times of the stages that the rank runs, over micro-batches and steps, by stage.
std::vector<StageReport> stages_of(const RankRecord& rank) {
  struct Stage {
    StageReport sum;
    std::map<ActionKind, int64_t> counts;
  };
  std::map<int, Stage> stages;
  for (const StepRecord& step : rank.steps)
    for (const ActionRecord& a : step.actions) {
      Stage& stage = stages[a.action.stage];
      stage.sum.*time_of(a.action.kind) += seconds(a.end - a.begin);
      ++stage.counts[a.action.kind];
    }
  std::vector<StageReport> means;
  for (auto& [number, stage] : stages) {
    stage.sum.stage = number, stage.sum.rank = rank.rank;
    for (const auto& [kind, count] : stage.counts) stage.sum.*time_of(kind) /= double(count);
    means.push_back(stage.sum);
  }
  return means;
}

// Returns the mean times by stage over replicas, as simulate() takes them: a backward that is not split into
// input and weight gradient counts as input_gradient.
std::vector<StageTimes> times_of(std::span<const StageReport> stages) {
  size_t count = 0;
  for (const StageReport& s : stages) count = std::max(count, size_t(s.stage) + 1);
  std::vector<StageTimes> times(count);
  std::vector<int> counts(count);
  for (const StageReport& s : stages) {
    StageTimes& t = times[size_t(s.stage)];
    const bool split_backward = s.input_gradient > 0 || s.weight_gradient > 0;
    t.forward += s.forward;
    t.input_gradient += split_backward ? s.input_gradient : s.backward;
    t.weight_gradient += s.weight_gradient;
    ++counts[size_t(s.stage)];
  }
  for (size_t i = 0; i < times.size(); ++i)
    for (double StageTimes::*time :
         {&StageTimes::forward, &StageTimes::input_gradient, &StageTimes::weight_gradient})
      times[i].*time /= std::max(counts[i], 1);
  return times;
}

// One step of one pipeline: the records of its ranks.
using PipelineStep = std::vector<const StepRecord*>;

// Returns the recorded order of actions of each rank, as a schedule for simulate().
ActionLists lists_of(const PipelineStep& step) {
  ActionLists lists;
  for (const StepRecord* rank : step) {
    auto& list = lists.of_rank.emplace_back();
    for (const ActionRecord& a : rank->actions) {
      list.push_back(a.action);
      lists.rank_of_stage.resize(std::max(lists.rank_of_stage.size(), size_t(a.action.stage) + 1), -1);
      lists.rank_of_stage[size_t(a.action.stage)] = lists.ranks() - 1;
      lists.micro_batches = std::max(lists.micro_batches, a.action.micro_batch + 1);
    }
  }
  return lists;
}

// Identifies a message of a step: stage, micro-batch, slot, gradient. sends_of returns the time at which the
// send of each message began.
using Address = std::tuple<int, int, int, bool>;
Address address_of(const MessageRecord& m) { return {m.stage, m.micro_batch, m.slot, m.gradient}; }
std::map<Address, int64_t> sends_of(const PipelineStep& step) {
  std::map<Address, int64_t> sends;
  for (const StepRecord* rank : step)
    for (const MessageRecord& m : rank->messages)
      if (!m.received) sends[address_of(m)] = m.begin;
  return sends;
}

// Adds the times of one step, in seconds, to the rank's report. [begin, end) is the step over all ranks of
// the pipeline. The wait for a message counts as slower_stage until the sender has sent it, then as
// communication.
void add_step(RankReport& report, const StepRecord& step, int64_t begin, int64_t end,
              const std::map<Address, int64_t>& sends) {
  int64_t waiting = 0, waiting_for_sender = 0;
  for (const MessageRecord& m : step.messages) {
    if (!m.received) {
      report.sent_bytes += double(m.bytes);
      continue;
    }
    const auto sent = sends.find(address_of(m));
    if (m.action == 0 || sent == sends.end()) continue;  // the wait for the first action is the fill
    waiting += m.end - m.begin;
    waiting_for_sender += std::clamp(sent->second, m.begin, m.end) - m.begin;
  }
  report.all_reduce_bytes += double(step.all_reduce_bytes);
  int64_t busy = 0;
  for (const ActionRecord& a : step.actions) busy += a.end - a.begin;
  const int64_t first = step.actions.front().begin, last = step.actions.back().end;
  report.busy += seconds(busy);
  report.fill += seconds(first - begin);
  report.drain += seconds(end - last);
  report.slower_stage += seconds(waiting_for_sender);
  report.communication += seconds(waiting - waiting_for_sender);
  report.overhead += seconds(last - first - busy - waiting);
}

// Adds the steps of one pipeline, whose ranks are `ranks`, to the report. Its makespans are sums over steps
// and pipelines until make_report divides them. `idle` and `predicted_idle` accumulate the measured and
// simulated idle time, as means over the ranks, in seconds.
void add_pipeline(PipelineReport& report, std::span<const RankRecord> ranks, double& idle,
                  double& predicted_idle) {
  std::vector<StageReport> stages;
  std::vector<RankReport> reports;
  for (const RankRecord& r : ranks) {
    for (const StageReport& s : stages_of(r)) stages.push_back(s);
    reports.push_back({.rank = r.rank});
  }
  const std::vector<StageTimes> times = times_of(stages);
  for (size_t i = 0; i < size_t(report.steps); ++i) {
    PipelineStep step;
    int64_t begin = std::numeric_limits<int64_t>::max(), end = std::numeric_limits<int64_t>::min();
    for (const RankRecord& r : ranks) {
      step.push_back(&r.steps[i]);
      begin = std::min(begin, step.back()->actions.front().begin);
      end = std::max(end, step.back()->actions.back().end);
    }
    const auto sends = sends_of(step);
    const SchedulePrediction simulated = simulate(lists_of(step), times);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      add_step(reports[rank], *step[rank], begin, end, sends);
      reports[rank].max_in_flight =
          std::max(reports[rank].max_in_flight, simulated.ranks[rank].max_in_flight);
    }
    report.makespan += seconds(end - begin);
    report.predicted_makespan += simulated.makespan;
    predicted_idle += simulated.idle_fraction * simulated.makespan;
  }
  for (RankReport& r : reports) {
    idle += (r.fill + r.drain + r.slower_stage + r.communication + r.overhead) / double(reports.size());
    for (double RankReport::*time :
         {&RankReport::busy, &RankReport::fill, &RankReport::drain, &RankReport::slower_stage,
          &RankReport::communication, &RankReport::overhead, &RankReport::sent_bytes,
          &RankReport::all_reduce_bytes})
      r.*time /= double(report.steps);
  }
  report.stages.insert(report.stages.end(), stages.begin(), stages.end());
  report.ranks.insert(report.ranks.end(), reports.begin(), reports.end());
}

// Errors: ValueError as make_report.
void check_same_steps(const PipelineRecord& record) {
  if (record.ranks.empty() || record.ranks.front().steps.empty())
    throw ValueError(kOp, "expected steps, got none: did record_steps come before them?");
  const RankRecord& first = record.ranks.front();
  for (const RankRecord& r : record.ranks) {
    const bool same = std::ranges::equal(r.steps, first.steps, {}, &StepRecord::number, &StepRecord::number);
    if (!same) throw ValueError(kOp, "ranks ", first.rank, " and ", r.rank, " recorded different steps");
    for (const StepRecord& s : r.steps)
      if (s.actions.empty()) throw ValueError(kOp, "rank ", r.rank, " has no actions in step ", s.number);
  }
}

template <class... Args> std::string formatted(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

// Returns the time in milliseconds, or "-" for 0: the stage has no such action.
std::string cell(double time) { return time > 0 ? formatted("%10.3f", 1e3 * time) : "         -"; }

}  // namespace

PipelineReport make_report(const PipelineRecord& record) {
  check_same_steps(record);
  PipelineReport report;
  report.steps = int64_t(record.ranks.front().steps.size());
  double idle = 0, predicted_idle = 0;
  int pipelines = 0;
  for (size_t begin = 0, end = 0; begin < record.ranks.size(); begin = end, ++pipelines) {
    while (end < record.ranks.size() && record.ranks[end].replica == record.ranks[begin].replica) ++end;
    add_pipeline(report, std::span(record.ranks).subspan(begin, end - begin), idle, predicted_idle);
  }
  report.idle_fraction = report.makespan > 0 ? idle / report.makespan : 0;
  report.predicted_idle_fraction =
      report.predicted_makespan > 0 ? predicted_idle / report.predicted_makespan : 0;
  report.makespan /= double(report.steps * pipelines);
  report.predicted_makespan /= double(report.steps * pipelines);
  return report;
}

std::string to_string(const PipelineReport& report) {
  std::string text = "stage  rank      F ms      B ms      I ms      W ms\n";
  for (const StageReport& s : report.stages) {
    text += formatted("%5d %5d", s.stage, s.rank);
    for (double time : {s.forward, s.backward, s.input_gradient, s.weight_gradient}) text += cell(time);
    text += '\n';
  }
  text +=
      "\n rank   busy ms      fill     drain  slower stage  communication  overhead  held   MB sent"
      "   reduced\n";
  for (const RankReport& r : report.ranks)
    text += formatted("%5d%10.3f%10.3f%10.3f%14.3f%15.3f%10.3f%6d%10.3f%10.3f\n", r.rank, 1e3 * r.busy,
                      1e3 * r.fill, 1e3 * r.drain, 1e3 * r.slower_stage, 1e3 * r.communication,
                      1e3 * r.overhead, int(r.max_in_flight), 1e-6 * r.sent_bytes, 1e-6 * r.all_reduce_bytes);
  return text + formatted("\nstep %.3f ms, idle %.2f %%; theory %.3f ms, idle %.2f %%\n",
                          1e3 * report.makespan, 100 * report.idle_fraction, 1e3 * report.predicted_makespan,
                          100 * report.predicted_idle_fraction);
}

std::vector<StageTimes> stage_times(const PipelineReport& report) { return times_of(report.stages); }

}  // namespace gradus::dist
