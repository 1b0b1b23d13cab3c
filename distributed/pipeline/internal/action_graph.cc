// Construction of ActionGraph, with checks that the actions are complete.
#include "gradus/distributed/pipeline/internal/action_graph.h"

#include "gradus/distributed/pipeline/schedule_check.h"

namespace gradus::dist::internal {

ActionGraph::ActionGraph(const ActionLists& lists) : lists_(lists) {
  const auto fail = [](const auto&... why) { throw ScheduleError("check_schedule", {}, why...); };
  int64_t count = 0;
  for (const auto& list : lists.of_rank) count += int64_t(list.size());
  const int64_t stages = lists.stages(), micro_batches = lists.micro_batches;
  if (count > kMaxActions || stages > kMaxActions || micro_batches < 0 ||
      (stages > 0 && micro_batches > kMaxActions / stages))
    fail("too many actions: the limit is ", kMaxActions);
  if (stages == 0 || micro_batches == 0) fail("expected actions, got none");
  // Checked before allocating memory.
  if (count < stages * micro_batches)
    fail(stages, " stages and ", micro_batches, " micro-batches have ", stages * micro_batches,
         " forwards, and there are ", count, " actions");

  forward_.assign(size_t(stages * micro_batches), -1);
  input_gradient_ = forward_;
  std::vector<char> weight_gradient(forward_.size());
  actions_.reserve(size_t(count));
  for (int rank = 0; rank < lists.ranks(); ++rank) {
    begins_.push_back(size());
    for (const Action& a : lists.of_rank[rank]) {
      if (a.stage < 0 || a.stage >= stages || a.micro_batch < 0 || a.micro_batch >= micro_batches)
        fail("rank ", rank, " has ", to_string(a), ", but there are ", stages, " stages and ", micro_batches,
             " micro-batches");
      if (lists.rank_of_stage[a.stage] != rank)
        fail("rank ", rank, " has ", to_string(a), ", but stage ", a.stage, " is on rank ",
             lists.rank_of_stage[a.stage]);
      const size_t index = index_of(a.stage, a.micro_batch);
      bool twice = false;
      if (a.kind == ActionKind::kForward)
        twice = std::exchange(forward_[index], size()) >= 0;
      else if (a.kind == ActionKind::kWeightGradient)
        twice = std::exchange(weight_gradient[index], 1);
      else
        twice = std::exchange(input_gradient_[index], size()) >= 0;
      if (a.kind == ActionKind::kBackward) twice = std::exchange(weight_gradient[index], 1) || twice;
      if (twice) fail("rank ", rank, " has ", to_string(a), " or a part of it twice");
      has_backwards_ = has_backwards_ || a.kind != ActionKind::kForward;
      actions_.push_back(&a);
    }
  }
  begins_.push_back(size());
  for (int stage = 0; stage < stages; ++stage)
    for (int k = 0; k < micro_batches; ++k) {
      const size_t index = index_of(stage, k);
      const auto missing = [&](ActionKind kind) { fail("no rank has ", to_string(Action{kind, stage, k})); };
      if (forward_[index] < 0) missing(ActionKind::kForward);
      if (has_backwards_ && input_gradient_[index] < 0) missing(ActionKind::kBackward);
      if (has_backwards_ && !weight_gradient[index]) missing(ActionKind::kWeightGradient);
    }
}

}  // namespace gradus::dist::internal
