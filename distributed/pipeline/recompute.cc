// Activation recomputation: which stages are recomputed, and the scopes of the two runs of a forward. The
// choice is greedy: simulate the schedule, and let each rank above the memory limit recompute the stage that
// frees the most bytes per second of forward; repeat until no rank can change.
#include "gradus/distributed/pipeline/recompute.h"

#include <algorithm>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// The value of Context::running_node during the second run, in place of checkpoint()'s node.
// is_recomputing() is true while running_node is not null.
struct RecomputingNode final : AutogradSlot {
  RecomputingNode() : AutogradSlot(false) {}
  bool is_recorded() const override { return false; }
};

}  // namespace

bool is_recomputed(Recompute mode, const std::vector<Action>& list, size_t i) {
  if (mode == Recompute::kNever || mode == Recompute::kAlways) return mode == Recompute::kAlways;
  const bool is_last = i + 1 == list.size();
  // kExceptLast, kAuto: unless the next action is the backward of the same micro-batch on the same stage.
  return is_last || list[i + 1].kind == ActionKind::kForward || list[i + 1].stage != list[i].stage ||
         list[i + 1].micro_batch != list[i].micro_batch;
}

std::vector<char> recomputed_stages(Recompute mode, const ActionLists& lists) {
  std::vector<char> recomputed(size_t(lists.stages()));
  for (const auto& list : lists.of_rank)
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i].kind == ActionKind::kForward && is_recomputed(mode, list, i))
        recomputed[size_t(list[i].stage)] = true;
  return recomputed;
}

std::vector<MicroBatchesInFlight> max_in_flight(const ActionLists& lists) {
  std::vector<MicroBatchesInFlight> current(size_t(lists.stages())), max(current);
  for (const auto& list : lists.of_rank)
    for (const Action& a : list) {
      MicroBatchesInFlight &n = current[size_t(a.stage)], &m = max[size_t(a.stage)];
      const bool begins = a.kind == ActionKind::kBackward || a.kind == ActionKind::kInputGradient;
      const bool ends = a.kind == ActionKind::kBackward || a.kind == ActionKind::kWeightGradient;
      if (a.kind == ActionKind::kForward) m.total = std::max(m.total, ++n.total);
      if (begins) m.in_backward = std::max(m.in_backward, ++n.in_backward);
      if (ends) --n.total, --n.in_backward;
    }
  return max;
}

double RecomputeChoice::peak_bytes() const { return std::ranges::max(rank_bytes); }

RecomputeChoice choose_recomputation(Recompute mode, const ActionLists& lists, std::vector<StageTimes> stages,
                                     const std::vector<double>& rank_bytes, double limit) {
  const bool is_auto = mode == Recompute::kAuto;
  std::vector<Recompute> of_stage(stages.size(), is_auto ? Recompute::kNever : mode);
  const std::vector<char> can_recompute = recomputed_stages(mode, lists);
  const std::vector<MicroBatchesInFlight> in_flight = max_in_flight(lists);
  const auto freed_per_second = [&](int s) {
    return double(in_flight[size_t(s)].total) * stages[size_t(s)].bytes /
           std::max(stages[size_t(s)].forward, 1e-9);
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

ProbeForward::ProbeForward(const nn::Module& model)
    : probe_(autograd::RecordingState::probe(autograd::open_recordings())),
      recordings_scope_({probe_}),
      buffers_(model.named_buffers()) {
  for (const auto& [name, buffer] : buffers_) versions_.push_back(buffer.storage()->version());
}

ProbeForward::~ProbeForward() { probe_->finish(); }

nn::StateDict ProbeForward::changed_buffers() const {
  nn::StateDict changed;
  size_t i = 0;
  for (const auto& [name, buffer] : buffers_)
    if (buffer.storage()->version() != versions_[i++]) changed.emplace_back(name, raw::clone(buffer));
  return changed;
}

RecomputedForward::RecomputedForward(nn::Module& model, const nn::StateDict& changed_buffers)
    : buffers_(model, changed_buffers, {.partial = true}),
      node_(new RecomputingNode),
      previous_node_(std::exchange(Context::current().running_node, node_.get())) {}

RecomputedForward::~RecomputedForward() { Context::current().running_node = previous_node_; }

}  // namespace gradus::dist::internal
