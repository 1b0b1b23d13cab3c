// Implementation of choose_cuts: finds candidate cuts, measures the units between them, and partitions the
// units.
#include "gradus/distributed/pipeline/internal/auto_cut.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/pipeline/internal/balance.h"
#include "gradus/distributed/pipeline/internal/stage_timing.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

int64_t tensors_received(const StagePlan& plan, int stage) {
  return std::ranges::count_if(plan.needs[stage], [](const StageInputSource& c) { return c.call >= 0; });
}

// Returns the calls after which the model may be cut with the fewest crossing tensors, in order.
std::vector<int> candidate_cuts(const ModelTrace& trace, int stages) {
  std::map<int64_t, std::vector<int>> by_width;
  for (const int call : outermost_calls(trace))
    if (const auto plan = plan_if_possible(trace, {call}))
      by_width[tensors_received(*plan, 1)].push_back(call);

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

// Allocates the unit's tensors and measures the unit.
StageTimes measure_unit(nn::Module& model, const StageSplit& units, int unit, bool split_backward,
                        const StagedModel::Parts& parts) {
  const nn::StateDict all = named_tensors(model);
  std::set<std::string> parameters;
  for (const auto& [name, p] : model.named_parameters()) parameters.insert(name);
  nn::StateDict unit_state;
  for (size_t i = 0; i < units.trace.state.size(); ++i) {
    const std::string& name = units.trace.state[i];
    if (!units.plan.reads(unit, i)) continue;
    const Tensor& meta = all.at(name);
    const Tensor real = full(meta.shape(), 1, {meta.dtype(), kCPU});
    if (parameters.contains(name) && is_floating(meta.dtype())) normal_(real, 0, 0.02);
    unit_state.emplace_back(name, real);
  }
  const nn::ParameterScope with_memory(model, unit_state, {.partial = true});
  return measure_stage(model, units, unit, split_backward,
                       [&] { return parts.forward(model, parts.inputs); });
}

// Returns the bytes of the results of earlier units that units [begin, end) read, counting each result once.
double received_bytes(const StageSplit& units, int begin, int end) {
  std::set<std::pair<int, int>> seen;
  double bytes = 0;
  for (int u = begin; u < end; ++u)
    for (const StageInputSource& c : units.plan.needs[u])
      if (c.call >= 0 && c.stage < begin && seen.insert({c.call, c.result}).second)
        bytes += double(units.result(c).nbytes());
  return bytes;
}

// Returns for each unit the bytes of the tensors that cross a cut after it.
std::vector<double> bytes_after(const StageSplit& units) {
  std::vector<double> bytes;
  for (int u = 0; u < units.plan.stages; ++u)
    bytes.push_back(received_bytes(units, u + 1, units.plan.stages));
  return bytes;
}

// Returns the bytes of the parameters that units [begin, end) read, counting each parameter once.
double parameter_bytes(const StageSplit& units, const std::vector<double>& bytes_of_state, int begin,
                       int end) {
  double bytes = 0;
  for (size_t i = 0; i < units.trace.state.size(); ++i)
    if (std::ranges::any_of(units.plan.owners[i], [&](int u) { return begin <= u && u < end; }))
      bytes += bytes_of_state[i];
  return bytes;
}

}  // namespace

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

std::optional<StagePlan> plan_if_possible(const ModelTrace& trace, const std::vector<int>& cuts) {
  try {
    return plan_stages(trace, cuts);
  } catch (const ValueError&) {
    return {};
  }
}

bool splits_backwards(const ActionLists& lists) {
  return std::ranges::any_of(lists.of_rank, [](const auto& list) {
    return std::ranges::find(list, ActionKind::kInputGradient, &Action::kind) != list.end();
  });
}

CutChoice choose_cuts(const StagedModel::Parts& parts, const ActionLists& lists, const CutOptions& options) {
  Context context = Context::current().snapshot();
  context.generator = std::make_shared<RandomGenerator>(*context.generator);
  const ContextScope in_context(context);
  const std::unique_ptr<nn::Module> model = make_on_meta(parts);
  const int stages = lists.stages();
  StageSplit units{trace_model(*model, parts, parts.inputs), {}};
  const std::vector<int> cuts = candidate_cuts(units.trace, stages);
  if (int(cuts.size()) < stages - 1) {
    std::string text;
    for (int c : cuts) text += " " + units.trace.calls[c].path;
    throw ValueError("Pipeline", "expected a model with at least ", stages - 1, " places to cut for ", stages,
                     " stages, got one that can be cut after:", text.empty() ? " nothing" : text);
  }
  units.plan = plan_stages(units.trace, cuts);
  const int n = units.plan.stages;

  const bool split_backward = splits_backwards(lists);
  std::vector<StageTimes> times(static_cast<size_t>(n));
  for (int u = get_rank(); u < n; u += get_world_size())
    times[u] = measure_unit(*model, units, u, split_backward, parts);
  times = sum_over_ranks(std::move(times));
  // Times of units [begin, end) as one stage.
  const auto sum_of_units = [&](int begin, int end) {
    StageTimes total;
    for (int u = begin; u < end; ++u)
      for (const auto time : kStageTimes) total.*time += times[u].*time;
    return total;
  };

  std::vector<double> bytes_of_state;
  const nn::StateDict parameters = model->named_parameters();
  for (const std::string& name : units.trace.state)
    bytes_of_state.push_back(parameters.contains(name) ? double(parameters.at(name).nbytes()) : 0);
  const double limit = options.memory_limit > 0 ? double(options.memory_limit) : INFINITY;
  std::vector<char> may_run_again = recomputed_stages(options.recompute, lists);
  if (options.recompute_every > 0)  // at least all groups except the last are recomputed
    may_run_again.assign(size_t(stages), options.recompute != Recompute::kNever);
  const std::vector<MicroBatchesInFlight> held = max_in_flight(lists);
  const auto bytes_of = [&](int stage, int begin, int end, bool recompute) {
    double saved = 0, recomputed = 0;
    if (!recompute) {
      saved = received_bytes(units, begin, end) + sum_of_units(begin, end).bytes;
    } else {
      const int group_length = options.recompute_every > 0 ? options.recompute_every : n;
      for (int u = begin; u < end; u += group_length) {
        const int group_end = std::min(u + group_length, end);
        saved += received_bytes(units, u, group_end);
        recomputed = std::max(recomputed, sum_of_units(u, group_end).bytes);
      }
    }
    return kBytesPerParameterByte * parameter_bytes(units, bytes_of_state, begin, end) +
           double(held[stage].most) * saved + double(held[stage].most_in_backward) * recomputed;
  };
  const auto is_recomputed = [&](int stage, int begin, int end) {
    if (options.recompute != Recompute::kAuto || !may_run_again[stage]) return bool(may_run_again[stage]);
    const auto stages_of_rank = std::ranges::count(lists.rank_of_stage, lists.rank_of_stage[stage]);
    return bytes_of(stage, begin, end, false) > limit / double(stages_of_rank);
  };
  const std::vector<int> ends =
      balance(bytes_after(units), stages, [&](int stage, int begin, int end) -> double {
        const bool recompute = is_recomputed(stage, begin, end);
        if (options.memory_limit > 0 && bytes_of(stage, begin, end, recompute) > limit) return INFINITY;
        const StageTimes t = sum_of_units(begin, end);
        return (recompute ? 2 : 1) * t.forward + t.input_gradient + t.weight_gradient;
      });

  CutChoice choice;
  std::vector<double> bytes_of_rank(size_t(lists.ranks()));
  for (int s = 0, begin = 0; s < stages && !ends.empty(); begin = ends[s++]) {
    if (s + 1 < stages) choice.cut_after.push_back(units.trace.calls[cuts[ends[s] - 1]].path);
    StageTimes stage = sum_of_units(begin, ends[s]);
    stage.input_bytes = received_bytes(units, begin, ends[s]);
    stage.recomputed = is_recomputed(s, begin, ends[s]);
    bytes_of_rank[lists.rank_of_stage[s]] += bytes_of(s, begin, ends[s], stage.recomputed);
    choice.stages.push_back(stage);
  }
  for (int s = 0, begin = 0; s < stages && !ends.empty(); begin = ends[s++]) {
    double& bytes = bytes_of_rank[lists.rank_of_stage[s]];
    if (bytes <= limit || !may_run_again[s] || choice.stages[s].recomputed) continue;
    bytes += bytes_of(s, begin, ends[s], true) - bytes_of(s, begin, ends[s], false);
    choice.stages[s].recomputed = true;
  }
  if (ends.empty() || std::ranges::max(bytes_of_rank) > limit)
    throw ValueError(
        "Pipeline", "no cut into ", stages, " stages keeps memory_limit = ", options.memory_limit,
        " bytes on each rank: the whole model needs ", int64_t(bytes_of(0, 0, n, may_run_again[0])),
        ", with its first stage's micro-batches. More stages or smaller micro-batches need less");
  return choice;
}

}  // namespace gradus::dist::internal
