// Implementation of choose_recomputation.
#include "gradus/distributed/pipeline/internal/recompute_choice.h"

#include <algorithm>

namespace gradus::dist::internal {

std::vector<MicroBatchesInFlight> max_in_flight(const ActionLists& lists) {
  std::vector<MicroBatchesInFlight> current(size_t(lists.stages())), max(current);
  for (const auto& list : lists.of_rank)
    for (const Action& a : list) {
      MicroBatchesInFlight &n = current[size_t(a.stage)], &m = max[size_t(a.stage)];
      const bool begins = a.kind == ActionKind::kBackward || a.kind == ActionKind::kInputGradient;
      const bool ends = a.kind == ActionKind::kBackward || a.kind == ActionKind::kWeightGradient;
      if (a.kind == ActionKind::kForward) m.most = std::max(m.most, ++n.most);
      if (begins) m.most_in_backward = std::max(m.most_in_backward, ++n.most_in_backward);
      if (ends) --n.most, --n.most_in_backward;
    }
  return max;
}

double RecomputeChoice::peak_bytes() const { return std::ranges::max(rank_bytes); }

RecomputeChoice choose_recomputation(Recompute mode, const ActionLists& lists, std::vector<StageTimes> stages,
                                     const std::vector<double>& rank_bytes, double limit) {
  const bool is_auto = mode == Recompute::kAuto;
  std::vector<Recompute> of_stage(stages.size(), is_auto ? Recompute::kNever : mode);
  const std::vector<char> can_recompute = recomputed_stages(mode, lists);
  const std::vector<MicroBatchesInFlight> held = max_in_flight(lists);
  const auto freed_per_second = [&](int s) {
    return double(held[size_t(s)].most) * stages[size_t(s)].bytes / std::max(stages[size_t(s)].forward, 1e-9);
  };
  for (size_t s = 0; s < stages.size(); ++s) stages[s].recomputed = can_recompute[s] && !is_auto;
  for (;;) {
    const SchedulePrediction p = simulate(lists, stages);
    RecomputeChoice choice{of_stage, stages, p.makespan, p.idle_fraction, rank_bytes};
    bool changed = false;
    for (size_t r = 0; r < rank_bytes.size(); ++r) {
      choice.rank_bytes[r] += p.ranks[r].peak_bytes;
      if (limit == 0 || choice.rank_bytes[r] <= limit) continue;
      int best = -1;
      for (int s = 0; s < lists.stages(); ++s)
        if (lists.rank_of_stage[size_t(s)] == int(r) && can_recompute[size_t(s)] &&
            !stages[size_t(s)].recomputed && (best < 0 || freed_per_second(s) > freed_per_second(best)))
          best = s;
      if (best < 0) continue;
      of_stage[size_t(best)] = Recompute::kExceptLast;
      stages[size_t(best)].recomputed = changed = true;
    }
    if (!changed) return choice;
  }
}

}  // namespace gradus::dist::internal
