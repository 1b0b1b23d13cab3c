// Implementation of activation recomputation: which forwards are recomputed, and the scopes of the two runs.
#include "gradus/distributed/pipeline/recompute.h"

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// Context::running_node during the second run, where checkpoint() would have its own node. Makes
// is_recomputing() true.
struct RecomputingNode final : AutogradSlot {
  RecomputingNode() : AutogradSlot(false) {}
  bool is_recorded() const override { return false; }
};

}  // namespace

bool is_recomputed(Recompute mode, const std::vector<Action>& list, size_t i) {
  if (mode == Recompute::kNever || mode == Recompute::kAlways) return mode == Recompute::kAlways;
  const bool is_last = i + 1 == list.size();
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

ProbeForward::ProbeForward(const nn::Module& model)
    : probe_(autograd::RecordingState::probe(autograd::open_recordings())),
      only_({probe_}),
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
      rule_(new RecomputingNode),
      outer_(std::exchange(Context::current().running_node, rule_.get())) {}

RecomputedForward::~RecomputedForward() { Context::current().running_node = outer_; }

}  // namespace gradus::dist::internal
