// check_schedule and simulate: run a pipeline schedule's actions in a topological order of their dependencies
// (Note [Schedules] in schedule.h). check_schedule only finds out whether the order exists; simulate computes
// the begin of each action as the maximum over the ends of its dependencies. F is the forward of one
// micro-batch on one stage, B its backward, which may be divided into I (gradient of the input) and W
// (gradients of the weights).
#include "gradus/distributed/pipeline/schedule_simulation.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gradus::dist {
namespace {

// The dependency graph of a schedule's actions. An action's id numbers the actions of rank 0 in order, then
// those of rank 1, and so on. Refers to `lists`, which must outlive the graph.
class ActionGraph {
 public:
  // Errors: ScheduleError unless each stage is on one rank, each stage and micro-batch has one F, and either
  // none has a backward or each has one: B, or I and W.
  explicit ActionGraph(const ActionLists& lists) : lists_(lists) {
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
          fail("rank ", rank, " has ", to_string(a), ", but there are ", stages, " stages and ",
               micro_batches, " micro-batches");
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
        const auto missing = [&](ActionKind kind) {
          fail("no rank has ", to_string(Action{kind, stage, k}));
        };
        if (forward_[index] < 0) missing(ActionKind::kForward);
        if (has_backwards_ && input_gradient_[index] < 0) missing(ActionKind::kBackward);
        if (has_backwards_ && !weight_gradient[index]) missing(ActionKind::kWeightGradient);
      }
  }

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
  // Calls f(rank) for each rank with an action that may depend on this action.
  template <class F> void each_rank_waiting(int32_t id, F f) const {
    const Action& a = action(id);
    f(lists_.rank_of_stage[a.stage]);
    if (a.kind == ActionKind::kForward && a.stage + 1 < lists_.stages()) f(lists_.rank_of_stage[a.stage + 1]);
    if (a.kind != ActionKind::kForward && a.stage > 0) f(lists_.rank_of_stage[a.stage - 1]);
  }

  // Calls run(id) for the actions in a topological order, in time linear in their number: each rank runs its
  // list until an action is not ready, and is tried again when an action has run that it may wait for.
  // Errors: ScheduleError, which prints the cycle, if the dependencies have one.
  template <class F> void run_all(F run) const {
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
    for (int rank = 0; rank < lists_.ranks(); ++rank)
      if (next[rank] < end(rank)) throw_cycle(next, rank);
  }

 private:
  // `next` has the first action of each rank that did not run; `rank` is a rank with such an action.
  [[noreturn]] void throw_cycle(const std::vector<int32_t>& next, int rank) const {
    // The next action of each blocked rank waits for an action that a blocked rank, maybe the same one, has
    // not reached. Following these dependencies leads to a rank for the second time: a cycle.
    std::vector<int32_t> path;  // alternates: waiting action, needed action
    std::vector<int> path_position(lists_.ranks(), -1);
    while (path_position[rank] < 0) {
      path_position[rank] = int(path.size());
      const int32_t waiting = next[rank];
      int32_t needed = -1;
      each_needed(waiting, [&](int32_t id) {
        if (id >= next[this->rank(id)]) needed = id;
      });
      path.push_back(waiting);
      path.push_back(needed);
      rank = this->rank(needed);
    }
    path.erase(path.begin(), path.begin() + path_position[rank]);
    std::vector<Action> cycle;  // without repetitions: a needed action may be the next action of its rank
    for (int32_t id : path)
      if (cycle.empty() || cycle.back() != action(id)) cycle.push_back(action(id));
    if (cycle.size() > 1 && cycle.front() == cycle.back()) cycle.pop_back();
    std::string text;
    for (size_t i = 0; i < path.size(); i += 2) {
      const int32_t waiting = path[i], needed = path[i + 1], predecessor = path[(i + 2) % path.size()];
      text += concat(i ? "; " : "", to_string(action(waiting)), " waits for ", to_string(action(needed)));
      if (needed != predecessor)
        text += concat(", which comes after ", to_string(action(predecessor)), " on rank ",
                       this->rank(predecessor));
    }
    throw ScheduleError("check_schedule", cycle, "actions wait for each other in a circle: ", text);
  }

  size_t index_of(int stage, int micro_batch) const {
    return size_t(stage) * lists_.micro_batches + micro_batch;
  }

  const ActionLists& lists_;
  std::vector<const Action*> actions_;
  std::vector<int32_t> begins_;
  std::vector<int32_t> forward_, input_gradient_;  // action by index_of(stage, micro_batch); B counts as I
  bool has_backwards_ = false;
};

void check_times(const ActionLists& lists, const std::vector<StageTimes>& stages, double message_seconds) {
  constexpr auto kOp = "simulate";
  if (stages.size() != lists.rank_of_stage.size())
    throw ValueError(kOp, "expected times for ", lists.stages(), " stages, got ", stages.size());
  for (const StageTimes& t : stages)
    for (double value : {t.forward, t.input_gradient, t.weight_gradient, t.bytes, t.input_bytes})
      if (!(value >= 0) || std::isinf(value))
        throw ValueError(kOp, "expected finite times and sizes of at least 0, got ", value);
  if (!(message_seconds >= 0))
    throw ValueError(kOp, "expected message_seconds of at least 0, got ", message_seconds);
}

// Returns the seconds that an action takes. A recomputed stage runs its forward again at the start of B or I.
double seconds_of(ActionKind kind, const StageTimes& t) {
  if (kind == ActionKind::kForward) return t.forward;
  if (kind == ActionKind::kWeightGradient) return t.weight_gradient;
  return (t.recomputed ? t.forward : 0) + t.input_gradient +
         (kind == ActionKind::kBackward ? t.weight_gradient : 0);
}

// What a rank has in memory at a time of the simulation: micro-batches between F and the end of B or W, and
// bytes of received inputs and saved tensors.
struct InMemory {
  int64_t micro_batches = 0;
  double bytes = 0;

  // Follows an action, and updates the maxima.
  void run(ActionKind kind, const StageTimes& t, RankPrediction& maxima) {
    if (kind == ActionKind::kForward) {
      maxima.max_in_flight = std::max(maxima.max_in_flight, ++micro_batches);
      bytes += t.input_bytes + (t.recomputed ? 0 : t.bytes);
    } else if (t.recomputed && kind != ActionKind::kWeightGradient) {
      bytes += t.bytes;
    }
    maxima.peak_bytes = std::max(maxima.peak_bytes, bytes);
    if (kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient) {
      --micro_batches;
      bytes -= t.input_bytes + t.bytes;
    }
  }
};

}  // namespace

void check_schedule(const ActionLists& lists) {
  ActionGraph(lists).run_all([](int32_t) {});
}

SchedulePrediction simulate(const ActionLists& lists, const std::vector<StageTimes>& stages,
                            double message_seconds) {
  const ActionGraph graph(lists);  // run_all finds cycles
  check_times(lists, stages, message_seconds);
  SchedulePrediction p;
  p.ranks.resize(lists.ranks());
  for (const auto& list : lists.of_rank) p.begins.emplace_back(list.size());
  std::vector<double> ends(graph.size());
  std::vector<InMemory> in_memory(lists.ranks());
  graph.run_all([&](int32_t id) {
    const ActionKind kind = graph.action(id).kind;
    const StageTimes& t = stages[graph.action(id).stage];
    const int rank = graph.rank(id);
    // Begins at the end of the predecessor in the rank's list, or later when an input arrives.
    double begin = id > graph.first(rank) ? ends[id - 1] : 0;
    graph.each_needed(id, [&](int32_t needed) {
      begin = std::max(begin, ends[needed] + (graph.rank(needed) == rank ? 0 : message_seconds));
    });
    const double time = seconds_of(kind, t);
    ends[id] = begin + time;
    p.begins[rank][id - graph.first(rank)] = begin;
    p.ranks[rank].busy += time;
    if (graph.has_backwards()) in_memory[rank].run(kind, t, p.ranks[rank]);
  });
  double begin = INFINITY, busy = 0;
  for (int rank = 0; rank < lists.ranks(); ++rank) {
    busy += p.ranks[rank].busy;
    if (p.begins[rank].empty()) continue;
    begin = std::min(begin, p.begins[rank].front());
    p.makespan = std::max(p.makespan, ends[graph.end(rank) - 1]);
  }
  p.makespan -= begin;
  if (p.makespan > 0) p.idle_fraction = 1 - busy / (lists.ranks() * p.makespan);
  return p;
}

}  // namespace gradus::dist
