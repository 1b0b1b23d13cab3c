// ActionGraph: the dependency graph of a schedule's actions, which are numbered over all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/distributed/pipeline/schedule.h"

namespace gradus::dist::internal {

class ActionGraph {
 public:
  // Errors: ScheduleError unless each stage is on one rank, each stage and micro-batch has one F, and either
  // none has a backward or each has one: B, or I and W.
  explicit ActionGraph(const ActionLists& lists);

  int32_t size() const { return int32_t(actions_.size()); }
  const Action& action(int32_t id) const { return *actions_[id]; }
  int rank(int32_t id) const { return lists_.rank_of_stage[action(id).stage]; }
  bool has_backwards() const { return has_backwards_; }
  int32_t first(int rank) const { return begins_[rank]; }  // the rank's actions are [first(rank), end(rank))
  int32_t end(int rank) const { return begins_[rank + 1]; }

  // Calls f(id) for each action that the action depends on, except its predecessor in the list.
  template <class F> void each_needed(int32_t id, F f) const {
    const Action& a = action(id);
    if (a.kind == ActionKind::kForward) {
      if (a.stage > 0) f(forward_[index_of(a.stage - 1, a.micro_batch)]);
    } else if (a.kind == ActionKind::kWeightGradient) {
      f(input_gradient_[index_of(a.stage, a.micro_batch)]);
    } else {
      f(forward_[index_of(a.stage, a.micro_batch)]);
      if (a.stage + 1 < lists_.stages()) f(input_gradient_[index_of(a.stage + 1, a.micro_batch)]);
    }
  }
  // Calls f(rank) for each rank with an action that depends on this action.
  template <class F> void each_rank_waiting(int32_t id, F f) const {
    const Action& a = action(id);
    f(lists_.rank_of_stage[a.stage]);
    if (a.kind == ActionKind::kForward && a.stage + 1 < lists_.stages()) f(lists_.rank_of_stage[a.stage + 1]);
    if (a.kind != ActionKind::kForward && a.stage > 0) f(lists_.rank_of_stage[a.stage - 1]);
  }

  // Calls run(id) for the actions in a topological order. Returns per rank the first action that did not run,
  // because of a cycle, or end(rank).
  template <class F> std::vector<int32_t> run_all(F run) const {
    std::vector<int32_t> next(begins_.begin(), begins_.end() - 1);
    std::vector<char> done(actions_.size());
    std::vector<int> to_try;
    for (int rank = lists_.ranks(); rank-- > 0;) to_try.push_back(rank);
    while (!to_try.empty()) {
      const int rank = to_try.back();
      to_try.pop_back();
      while (next[rank] < end(rank)) {
        const int32_t id = next[rank];
        bool ready = true;
        each_needed(id, [&](int32_t needed) { ready = ready && done[needed]; });
        if (!ready) break;
        run(id);
        done[id] = true;
        ++next[rank];
        each_rank_waiting(id, [&](int other) {
          if (other != rank) to_try.push_back(other);
        });
      }
    }
    return next;
  }

 private:
  size_t index_of(int stage, int micro_batch) const {
    return size_t(stage) * lists_.micro_batches + micro_batch;
  }

  const ActionLists& lists_;
  std::vector<const Action*> actions_;
  std::vector<int32_t> begins_;
  std::vector<int32_t> forward_, input_gradient_;  // action by index_of(stage, micro_batch); B counts as I
  bool has_backwards_ = false;
};

}  // namespace gradus::dist::internal
