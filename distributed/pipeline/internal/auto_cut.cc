// Automatic placement of pipeline cuts (choose_cuts) and of recomputation groups (group_ends). A trace lists
// the module calls of one forward. choose_cuts finds the calls after which the trace can be cut, measures the
// units between them on all ranks, and partitions the units into stages by dynamic programming. Times are in
// seconds.
#include "gradus/distributed/pipeline/internal/auto_cut.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/pipeline/internal/stage_timing.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

constexpr double kTolerance = 1.01;  // relative accuracy of measured times

// Returns plan_stages(trace, cuts), or nullopt if plan_stages throws ValueError.
std::optional<StagePlan> plan_if_possible(const ModelTrace& trace, const std::vector<int>& cuts) {
  try {
    return plan_stages(trace, cuts);
  } catch (const ValueError&) {
    return {};
  }
}

// Returns the calls (indices in the trace) after which the model may be cut, in order. If nested calls end
// together, only the outermost is returned. The root, calls in a checkpoint and modules called several times
// are excluded.
std::vector<int> outermost_calls(const ModelTrace& trace) {
  std::map<std::string, int> calls_of;
  for (const TracedCall& call : trace.calls) ++calls_of[call.path];
  std::map<int, int> by_end;
  for (int i = 0; i < int(trace.calls.size()); ++i) {
    const TracedCall& call = trace.calls[i];
    if (call.parent >= 0 && !call.in_checkpoint && calls_of[call.path] == 1) by_end.try_emplace(call.end, i);
  }
  std::vector<int> calls;
  for (const auto& [end, call] : by_end) calls.push_back(call);
  return calls;
}

// Returns the calls after which the model may be cut with the fewest crossing tensors, in order; at least
// 2 * stages calls if the model has them and can be cut after all of them. A tensor crosses if a call before
// the cut made it and a call after the cut reads it.
std::vector<int> candidate_cuts(const ModelTrace& trace, int stages) {
  std::map<int64_t, std::vector<int>> by_width;
  for (const int call : outermost_calls(trace))
    if (const auto plan = plan_if_possible(trace, {call}))
      by_width[std::ranges::count_if(plan->inputs[1], [](const auto& c) { return c.call >= 0; })].push_back(
          call);
  std::vector<int> chosen;
  for (const auto& [width, calls] : by_width) {
    if (int(chosen.size()) >= 2 * stages) break;
    chosen.insert(chosen.end(), calls.begin(), calls.end());
  }
  std::ranges::sort(chosen, {}, [&](int c) { return trace.calls[c].end; });
  if (plan_if_possible(trace, chosen)) return chosen;
  std::vector<int> compatible;  // cuts that plan_stages accepts together
  for (int call : chosen) {
    compatible.push_back(call);
    if (!plan_if_possible(trace, compatible)) compatible.pop_back();
  }
  return compatible;
}

// Dynamic programming: best_cost[s][end] is the minimal cost of the first `end` units in s stages, and
// begins[s][end] the begin of the last of them. cost(c, stage, begin, end) returns the cost of stages that
// cost c and a further stage of units [begin, end). Returns the stages' ends; empty if no cost is finite.
template <class Cost> std::vector<int> best_ends(int units, int stages, const Cost& cost) {
  std::vector best_cost(size_t(stages) + 1, std::vector<double>(size_t(units) + 1, INFINITY));
  std::vector begins(size_t(stages), std::vector<int>(size_t(units) + 1, -1));
  best_cost[0][0] = 0;
  for (int s = 0; s < stages; ++s)
    for (int end = s + 1; end <= units; ++end)
      for (int begin = s; begin < end; ++begin) {
        if (best_cost[s][begin] == INFINITY) continue;
        const double c = cost(best_cost[s][begin], s, begin, end);
        if (c < best_cost[s + 1][end]) best_cost[s + 1][end] = c, begins[s][end] = begin;
      }
  if (best_cost[stages][units] == INFINITY) return {};
  std::vector<int> ends(static_cast<size_t>(stages), units);
  for (int s = stages - 1; s > 0; --s) ends[s - 1] = begins[s][ends[s]];
  return ends;
}

// The units of a model, and the times and memory of stages that consist of units [begin, end).
class Units {
 public:
  // `model` is on the meta device.
  // Errors: ValueError if the model has fewer possible cuts than `lists` needs.
  Units(nn::Module& model, const StagedModel::Parts& parts, const ActionLists& lists,
        const CutOptions& options)
      : lists_(lists),
        options_(options),
        limit_(options.memory_limit > 0 ? double(options.memory_limit) : INFINITY),
        split_{trace_model(model, parts, parts.inputs), {}},
        cuts_(candidate_cuts(split_.trace, lists.stages())),
        may_be_recomputed_(recomputed_stages(options.recompute, lists)),
        in_flight_(max_in_flight(lists)) {
    const int stages = lists.stages();
    if (int(cuts_.size()) < stages - 1) {
      std::string text;
      for (int c : cuts_) text += " " + split_.trace.calls[c].path;
      throw ValueError("Pipeline", "expected a model with at least ", stages - 1, " positions to cut for ",
                       stages, " stages, got one that can be cut after:", text.empty() ? " nothing" : text);
    }
    split_.plan = plan_stages(split_.trace, cuts_);
    for (const auto& [name, p] : model.named_parameters()) parameter_bytes_.push_back(double(p.nbytes()));
    // With groups, only the last group's backward can follow its forward directly (kExceptLast).
    if (options.recompute_every > 0)
      may_be_recomputed_.assign(size_t(stages), options.recompute != Recompute::kNever);
  }

  // Measures the units, unit u on rank u % world_size. Collective over the job.
  void measure(nn::Module& model, const StagedModel::Parts& parts) {
    times_.resize(size_t(size()));
    for (int u = get_rank(); u < size(); u += get_world_size()) times_[u] = measure_unit(model, parts, u);
    times_ = sum_over_ranks(std::move(times_));
  }

  double limit() const { return limit_; }
  int size() const { return split_.plan.stages; }
  // Returns the path of the module after which a stage of units up to `end` is cut.
  const std::string& cut_after(int end) const { return split_.trace.calls[cuts_[end - 1]].path; }
  // Returns for each unit the bytes of the tensors that cross a cut after it.
  std::vector<double> bytes_after() const {
    std::vector<double> bytes;
    for (int u = 0; u < size(); ++u) bytes.push_back(received_bytes(u + 1, size()));
    return bytes;
  }

  // Returns the sums of the units' times.
  StageTimes times(int begin, int end) const {
    StageTimes total;
    for (int u = begin; u < end; ++u)
      for (const auto time : kStageTimes) total.*time += times_[u].*time;
    return total;
  }

  // Returns the bytes of the results of earlier units that the units read, counting each result once.
  double received_bytes(int begin, int end) const {
    std::set<std::pair<int, int>> seen;
    double bytes = 0;
    for (int u = begin; u < end; ++u)
      for (const StageInputSource& c : split_.plan.inputs[u])
        if (c.call >= 0 && c.stage < begin && seen.insert({c.call, c.result}).second)
          bytes += double(split_.result(c).nbytes());
    return bytes;
  }

  // Returns the bytes that a rank needs for the stage: parameters with gradients and optimizer state, saved
  // tensors of the micro-batches in flight, and of the groups that are recomputed at the moment.
  double bytes(int stage, int begin, int end, bool recompute) const {
    double parameters = 0, saved = 0, recomputed = 0;
    for (size_t i = 0; i < parameter_bytes_.size(); ++i)
      if (std::ranges::any_of(split_.plan.owners[i], [&](int u) { return begin <= u && u < end; }))
        parameters += parameter_bytes_[i];
    if (!recompute) {
      saved = received_bytes(begin, end) + times(begin, end).bytes;
    } else {
      // An estimate: takes a unit as a layer.
      const int group_length = options_.recompute_every > 0 ? options_.recompute_every : size();
      for (int u = begin; u < end; u += group_length) {
        const int group_end = std::min(u + group_length, end);
        saved += received_bytes(u, group_end);
        recomputed = std::max(recomputed, times(u, group_end).bytes);
      }
    }
    return kBytesPerParameterByte * parameters + double(in_flight_[stage].total) * saved +
           double(in_flight_[stage].in_backward) * recomputed;
  }

  bool may_be_recomputed(int stage) const { return may_be_recomputed_[stage]; }
  // kAuto: recomputed if the stage exceeds its share of the rank's memory limit.
  bool is_recomputed(int stage, int begin, int end) const {
    if (options_.recompute != Recompute::kAuto || !may_be_recomputed(stage)) return may_be_recomputed(stage);
    const auto stages_of_rank = std::ranges::count(lists_.rank_of_stage, lists_.rank_of_stage[stage]);
    return bytes(stage, begin, end, false) > limit_ / double(stages_of_rank);
  }

  // Returns the time of the stage, or infinity if the stage exceeds the memory limit.
  double seconds(int stage, int begin, int end) const {
    const bool recompute = is_recomputed(stage, begin, end);
    if (options_.memory_limit > 0 && bytes(stage, begin, end, recompute) > limit_) return INFINITY;
    const StageTimes t = times(begin, end);
    return (recompute ? 2 : 1) * t.forward + t.input_gradient + t.weight_gradient;
  }

 private:
  // Allocates the unit's tensors and measures the unit.
  StageTimes measure_unit(nn::Module& model, const StagedModel::Parts& parts, int unit) const {
    const nn::StateDict all = named_tensors(model);
    nn::StateDict unit_state;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!split_.plan.reads(unit, i)) continue;
      const auto& [name, meta] = all[i];
      const Tensor real = full(meta.shape(), 1, {meta.dtype(), kCPU});
      if (i < parameter_bytes_.size() && is_floating(meta.dtype())) normal_(real, 0, 0.02);
      unit_state.emplace_back(name, real);
    }
    const nn::ParameterScope with_memory(model, unit_state, {.partial = true});
    return measure_stage(model, split_, unit, splits_backwards(lists_),
                         [&] { return parts.forward(model, parts.inputs); });
  }

  const ActionLists& lists_;
  const CutOptions& options_;
  const double limit_;     // bytes per rank
  StageSplit split_;       // each unit is a stage
  std::vector<int> cuts_;  // the calls after which units end, without the last unit's
  std::vector<StageTimes> times_;
  std::vector<double> parameter_bytes_;  // by index in ModelTrace::state, which begins with the parameters
  std::vector<char> may_be_recomputed_;  // per stage
  std::vector<MicroBatchesInFlight> in_flight_;
};

// Returns whether exactly one floating-point tensor crosses a cut after the call.
bool is_narrow(const ModelTrace& trace, int call) {
  const auto plan = plan_if_possible(trace, {call});
  return plan && std::ranges::count_if(plan->inputs[1], [&](const StageInputSource& c) {
                   return c.call >= 0 &&
                          is_floating(trace.calls[size_t(c.call)].results[size_t(c.result)].dtype());
                 }) == 1;
}

}  // namespace

std::vector<int> balance(const std::vector<double>& bytes_after, int stages, const StageSeconds& seconds) {
  const int n = int(bytes_after.size());
  // Minimizes the slowest stage, then the crossing bytes among partitions about as fast.
  const auto fastest = best_ends(n, stages, [&](double previous_cost, int stage, int begin, int end) {
    return std::max(previous_cost, seconds(stage, begin, end));
  });
  if (fastest.empty()) return {};
  double slowest = 0;
  for (int s = 0, begin = 0; s < stages; begin = fastest[s++])
    slowest = std::max(slowest, seconds(s, begin, fastest[s]));
  return best_ends(n, stages, [&](double previous_cost, int stage, int begin, int end) -> double {
    if (seconds(stage, begin, end) > slowest * kTolerance) return INFINITY;
    return previous_cost + (end < n ? bytes_after[end - 1] : 0);
  });
}

bool splits_backwards(const ActionLists& lists) {
  return std::ranges::any_of(lists.of_rank, [](const auto& list) {
    return std::ranges::find(list, ActionKind::kInputGradient, &Action::kind) != list.end();
  });
}

CutChoice choose_cuts(const StagedModel::Parts& parts, const ActionLists& lists, const CutOptions& options) {
  // Measuring draws random numbers from a copy of the generator.
  Context context = Context::current().snapshot();
  context.generator = std::make_shared<RandomGenerator>(*context.generator);
  const ContextScope in_context(context);
  const std::unique_ptr<nn::Module> model = make_on_meta(parts);
  Units units(*model, parts, lists, options);
  units.measure(*model, parts);
  const int stages = lists.stages();
  const std::vector<int> ends = balance(units.bytes_after(), stages, [&](int stage, int begin, int end) {
    return units.seconds(stage, begin, end);
  });
  CutChoice choice;
  std::vector<double> bytes_of_rank(size_t(lists.ranks()));
  for (int s = 0, begin = 0; s < stages && !ends.empty(); begin = ends[s++]) {
    if (s + 1 < stages) choice.cut_after.push_back(units.cut_after(ends[s]));
    StageTimes stage = units.times(begin, ends[s]);
    stage.input_bytes = units.received_bytes(begin, ends[s]);
    stage.recomputed = units.is_recomputed(s, begin, ends[s]);
    bytes_of_rank[lists.rank_of_stage[s]] += units.bytes(s, begin, ends[s], stage.recomputed);
    choice.stages.push_back(stage);
  }
  // Recomputes further stages of ranks whose stages exceed the limit together.
  for (int s = 0, begin = 0; s < stages && !ends.empty(); begin = ends[s++]) {
    double& bytes = bytes_of_rank[lists.rank_of_stage[s]];
    if (bytes <= units.limit() || !units.may_be_recomputed(s) || choice.stages[s].recomputed) continue;
    bytes += units.bytes(s, begin, ends[s], true) - units.bytes(s, begin, ends[s], false);
    choice.stages[s].recomputed = true;
  }
  if (ends.empty() || std::ranges::max(bytes_of_rank) > units.limit())
    throw ValueError(
        "Pipeline", "no cut into ", stages, " stages keeps memory_limit = ", options.memory_limit,
        " bytes on each rank: the whole model needs ",
        int64_t(units.bytes(0, 0, units.size(), units.may_be_recomputed(0))),
        ", with its first stage's micro-batches. More stages or smaller micro-batches need less");
  return choice;
}

std::vector<std::vector<std::string>> group_ends(const StagedModel::Parts& parts, int stages, int every) {
  const std::unique_ptr<nn::Module> model = make_on_meta(parts);
  const ModelTrace trace = trace_model(*model, parts, parts.inputs);
  std::vector<int> cuts = cuts_after(trace, parts.cut_after);
  check_cuts(parts.cut_after, stages);
  const auto end_of = [&](int call) { return trace.calls[size_t(call)].end; };
  std::vector<int> stage_ends;
  for (int cut : cuts) stage_ends.push_back(end_of(cut));
  stage_ends.push_back(int(trace.calls.size()));
  std::vector<std::vector<std::string>> ends(static_cast<size_t>(stages));
  size_t s = 0;    // the stage of the call
  int layers = 0;  // narrow calls of the stage so far
  for (const int call : outermost_calls(trace)) {
    while (s < stage_ends.size() && end_of(call) >= stage_ends[s]) ++s, layers = 0;
    if (s == stage_ends.size()) break;
    if (s > 0 && end_of(call) == stage_ends[s - 1]) continue;
    if (!is_narrow(trace, call) || ++layers % every != 0) continue;
    std::vector<int> extended = cuts;
    extended.insert(std::ranges::upper_bound(extended, end_of(call), {}, end_of), call);
    if (!plan_if_possible(trace, extended)) continue;
    cuts = std::move(extended);
    ends[s].push_back(trace.calls[size_t(call)].path);
  }
  return ends;
}

// An action of a stage becomes adjacent actions of its groups: in order for a forward, else in reverse.
ActionLists in_groups(const ActionLists& lists, const std::vector<int>& groups_of_stage) {
  if (groups_of_stage.empty()) return lists;
  std::vector<int> first = {0};  // group of each stage
  for (int groups : groups_of_stage) first.push_back(first.back() + groups);
  ActionLists grouped{.of_rank = {}, .rank_of_stage = {}, .micro_batches = lists.micro_batches};
  for (size_t s = 0; s < groups_of_stage.size(); ++s)
    grouped.rank_of_stage.insert(grouped.rank_of_stage.end(), size_t(groups_of_stage[s]),
                                 lists.rank_of_stage[s]);
  for (const auto& list : lists.of_rank) {
    auto& list_of_groups = grouped.of_rank.emplace_back();
    for (const Action& a : list) {
      const int begin = first[size_t(a.stage)], end = first[size_t(a.stage) + 1];
      for (int i = 0; i < end - begin; ++i)
        list_of_groups.push_back(
            {a.kind, a.kind == ActionKind::kForward ? begin + i : end - 1 - i, a.micro_batch});
    }
  }
  return grouped;
}

}  // namespace gradus::dist::internal
