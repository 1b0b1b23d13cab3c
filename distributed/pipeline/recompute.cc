#include "gradus/distributed/pipeline/recompute.h"

#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// Stands for the rule in which a checkpoint would run its function again.
struct StageAgain final : AutogradSlot {
  StageAgain() : AutogradSlot(false) {}
  bool is_followed() const override { return false; }
};

}  // namespace

bool runs_again(Recompute mode, const std::vector<Action>& list, size_t i) {
  if (mode != Recompute::kExceptLast) return mode == Recompute::kAlways;
  const bool is_last = i + 1 == list.size();
  return is_last || list[i + 1].kind == ActionKind::kForward || list[i + 1].stage != list[i].stage ||
         list[i + 1].micro_batch != list[i].micro_batch;
}

ProbeScope::ProbeScope()
    : probe_(autograd::RecordingState::probe(autograd::open_recordings())), only_({probe_}) {}

ProbeScope::~ProbeScope() { probe_->finish(); }

RecomputingScope::RecomputingScope()
    : rule_(new StageAgain), outer_(std::exchange(Context::current().running_node, rule_.get())) {}

RecomputingScope::~RecomputingScope() { Context::current().running_node = outer_; }

}  // namespace gradus::dist::internal
