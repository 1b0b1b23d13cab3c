// Implementation of simulate: computes begin and end of each action in dependency order.
#include "gradus/distributed/pipeline/schedule_simulation.h"

#include <algorithm>
#include <cmath>

#include "gradus/distributed/pipeline/internal/action_graph.h"
#include "gradus/distributed/pipeline/schedule_check.h"

namespace gradus::dist {

SchedulePrediction simulate(const ActionLists& lists, const std::vector<StageTimes>& stages,
                            LinkTimes links) {
  constexpr auto kOp = "simulate";
  const internal::ActionGraph graph(lists);
  if (stages.size() != lists.rank_of_stage.size())
    throw ValueError(kOp, "expected times for ", lists.stages(), " stages, got ", stages.size());
  for (const StageTimes& t : stages)
    for (double value : {t.forward, t.input_gradient, t.weight_gradient, t.bytes, t.input_bytes})
      if (!(value >= 0) || std::isinf(value))
        throw ValueError(kOp, "expected times of at least 0, got ", value);
  if (!(links.forward >= 0) || !(links.backward >= 0))
    throw ValueError(kOp, "expected times of links of at least 0, got ", links.forward, " and ",
                     links.backward);

  SchedulePrediction p;
  p.ranks.resize(lists.ranks());
  for (const auto& list : lists.of_rank) p.begins.emplace_back(list.size());
  std::vector<double> ends(graph.size());
  const bool has_backwards = graph.has_backwards();
  std::vector<int64_t> held(lists.ranks());
  std::vector<double> bytes(lists.ranks());
  const auto next = graph.run_all([&](int32_t id) {
    const Action& a = graph.action(id);
    const int rank = graph.rank(id);
    const StageTimes& t = stages[a.stage];
    double begin = id > graph.first(rank) ? ends[id - 1] : 0;
    graph.each_needed(id, [&](int32_t needed) {
      const bool local = graph.rank(needed) == rank;
      begin = std::max(begin, ends[needed] + (local                            ? 0
                                              : a.kind == ActionKind::kForward ? links.forward
                                                                               : links.backward));
    });
    double time = t.forward;
    if (a.kind == ActionKind::kWeightGradient)
      time = t.weight_gradient;
    else if (a.kind != ActionKind::kForward)  // B or I
      time = (t.recomputed ? t.forward : 0) + t.input_gradient +
             (a.kind == ActionKind::kBackward ? t.weight_gradient : 0);
    ends[id] = begin + time;
    p.begins[rank][id - graph.first(rank)] = begin;
    RankPrediction& r = p.ranks[rank];
    r.busy += time;
    if (!has_backwards) return;
    if (a.kind == ActionKind::kForward) {
      r.max_in_flight = std::max(r.max_in_flight, ++held[rank]);
      bytes[rank] += t.input_bytes + (t.recomputed ? 0 : t.bytes);
    } else if (t.recomputed && a.kind != ActionKind::kWeightGradient) {
      bytes[rank] += t.bytes;
    }
    r.peak_bytes = std::max(r.peak_bytes, bytes[rank]);
    if (a.kind == ActionKind::kBackward || a.kind == ActionKind::kWeightGradient) {
      --held[rank];
      bytes[rank] -= t.input_bytes + t.bytes;
    }
  });
  for (int rank = 0; rank < lists.ranks(); ++rank)
    if (next[rank] < graph.end(rank)) check_schedule(lists);  // throws

  double begin = INFINITY, busy = 0;
  for (int rank = 0; rank < lists.ranks(); ++rank) {
    RankPrediction& r = p.ranks[rank];
    if (!p.begins[rank].empty()) {
      r.begin = p.begins[rank].front();
      r.end = ends[graph.end(rank) - 1];
      begin = std::min(begin, r.begin);
      p.makespan = std::max(p.makespan, r.end);
    }
    busy += r.busy;
  }
  p.makespan -= begin;
  if (p.makespan > 0) p.idle_fraction = 1 - busy / (lists.ranks() * p.makespan);
  return p;
}

}  // namespace gradus::dist
