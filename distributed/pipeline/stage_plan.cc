// plan_stages: divides a model trace into pipeline stages and determines the tensors that cross each cut (the
// end of a stage), by data flow analysis: one pass over the trace's events in order propagates the sources of
// every storage's values. An op that reads a source of an earlier stage makes this source an input of the
// current stage.
#include "gradus/distributed/pipeline/stage_plan.h"

#include <algorithm>
#include <set>

#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

using Role = StagePlan::Role;

// An origin of a value. A value computed by ops between modules has several.
//   kState: a parameter or buffer        kResult: a result of a call
//   kInternal: computed inside a call but not returned by it
//   kRandom: random numbers drawn between modules
struct Source {
  enum Kind { kState, kResult, kInternal, kRandom } kind;
  int of;          // kState: index in ModelTrace::state; otherwise the call
  int result = 0;  // kResult: index in the call's results
  int stage = 0;
  auto operator<=>(const Source&) const = default;
};
using Sources = std::set<Source>;

// Walks through the trace's events, assigns them to stages, and propagates the sources of every storage.
class Planner {
 public:
  Planner(const ModelTrace& trace, StagePlan& plan)
      : trace_(trace), plan_(plan), sources_(trace.num_storages), unwritten_(trace.num_storages, true) {
    for (StorageId m : trace.inputs)
      if (m >= 0) unwritten_[m] = false;
    for (size_t i = 0; i < trace.state.size(); ++i) {
      sources_[trace.state_storages[i]].insert({Source::kState, int(i)});
      unwritten_[trace.state_storages[i]] = false;
    }
  }

  void run() {
    for (const TracedEvent& event : trace_.events) {
      if (event.kind == TracedEvent::kEnter) {
        if (plan_.calls[event.call].role == Role::kOneStage) own_ = event.call;
        plan_.calls[event.call].stage = stage_;
      } else if (event.kind == TracedEvent::kOp) {
        run_op(event);
      } else {
        leave(event.call);
      }
    }
    for (StorageId m : trace_.results)
      if (m >= 0) read(sources_[m], "the loss");
    add_links();
  }

 private:
  void run_op(const TracedEvent& op) {
    Sources op_sources;
    for (StorageId m : op.storages)
      if (m >= 0) op_sources.insert(sources_[m].begin(), sources_[m].end());
    read(op_sources, op.call < 0 ? "" : trace_.calls[op.call].path);
    // The first operand is a result; so is every storage that no earlier op used.
    for (size_t i = 0; i < op.storages.size(); ++i) {
      const StorageId m = op.storages[i];
      if (m < 0 || (i > 0 && !unwritten_[m]) || is_state(m)) continue;
      const bool is_new = unwritten_[m];
      unwritten_[m] = false;
      if (own_ >= 0)
        sources_[m] = {Source{Source::kInternal, own_, 0, stage_}};
      else if (is_new)
        sources_[m] = op_sources;
      else
        sources_[m].insert(op_sources.begin(), op_sources.end());
      if (own_ < 0 && op.draws_random) sources_[m].insert({Source::kRandom, op.call, 0, stage_});
    }
  }

  // Records that the current stage reads these sources: owners of state, and results of earlier stages.
  void read(const Sources& sources, const std::string& reader) {
    for (const Source& s : sources) {
      if (s.kind == Source::kState) {
        auto& owners = plan_.owners[s.of];
        if (owners.empty() || owners.back() != stage_) owners.push_back(stage_);
      } else if (s.stage < stage_) {
        const std::string& maker = s.of < 0 ? trace_.calls[0].path : trace_.calls[s.of].path;
        if (s.kind == Source::kInternal)
          throw ValueError("Pipeline", "'", reader, "' of stage ", stage_, " reads a tensor that '", maker,
                           "' of stage ", s.stage, " keeps aside: let '", maker, "' return it");
        if (s.kind == Source::kRandom)
          throw ValueError("Pipeline", "'", reader, "' of stage ", stage_,
                           " reads random numbers that were drawn on stage ", s.stage,
                           " between modules: draw them in a module (nn::Dropout)");
        const StageInputSource input{s.of, s.result, s.stage};
        auto& inputs = plan_.inputs[stage_];
        if (std::ranges::find(inputs, input) == inputs.end()) inputs.push_back(input);
      }
    }
  }

  // Ends a call: its results become sources, and a cut after the call begins the next stage.
  void leave(int call) {
    StagePlan::Call& planned = plan_.calls[call];
    if (planned.role == Role::kOneStage) {
      own_ = -1;
      // A module that only returns views of its inputs runs on every stage, so its result need not be sent.
      const auto& storages = trace_.calls[call].storages;
      const auto computed = [&](StorageId m) {
        return m >= 0 && std::ranges::any_of(sources_[m], [&](const Source& s) {
                 return s.kind == Source::kInternal && s.of == call;
               });
      };
      const bool views_alone = std::ranges::none_of(storages, computed) && !reads_state(call);
      if (views_alone)
        for (int i = call; i < trace_.calls[call].end; ++i) plan_.calls[i].role = Role::kEveryStage;
      else
        for (size_t i = 0; i < storages.size(); ++i)
          if (storages[i] >= 0) sources_[storages[i]] = {Source{Source::kResult, call, int(i), stage_}};
    }
    if (planned.ends_stage) ++stage_;
  }

  // Returns whether an op within the call has a parameter or buffer as an operand.
  bool reads_state(int call) const {
    return std::ranges::any_of(trace_.events, [&](const TracedEvent& e) {
      return e.kind == TracedEvent::kOp && e.call >= call && e.call < trace_.calls[call].end &&
             std::ranges::any_of(e.storages, [&](StorageId m) { return is_state(m); });
    });
  }

  bool is_state(StorageId m) const {
    return std::ranges::find(trace_.state_storages, m) != trace_.state_storages.end();
  }

  // Makes slot 0 of each stage an input from the previous stage, which also carries the generator's state.
  void add_links() {
    for (int s = 1; s < plan_.stages; ++s) {
      auto& inputs = plan_.inputs[s];
      const auto link = std::ranges::find(inputs, s - 1, &StageInputSource::stage);
      if (link != inputs.end())
        std::rotate(inputs.begin(), link, link + 1);
      else
        inputs.insert(inputs.begin(), {.stage = s - 1});
    }
  }

  const ModelTrace& trace_;
  StagePlan& plan_;
  std::vector<Sources> sources_;  // per storage
  std::vector<char> unwritten_;   // per storage: no op has used it yet
  int stage_ = 0;
  int own_ = -1;  // the current kOneStage call; -1: none
};

bool can_end_a_stage(const TracedCall& call) { return call.parent >= 0 && !call.in_checkpoint; }

}  // namespace

std::vector<StagePlan::Sent> StagePlan::sends(int stage) const {
  std::vector<Sent> sent;
  for (int to = stages - 1; to > stage; --to)
    for (size_t slot = 0; slot < inputs[to].size(); ++slot) {
      const StageInputSource& value = inputs[to][slot];
      if (value.stage != stage) continue;
      auto position = std::ranges::find(sent, value, &Sent::value);
      if (position == sent.end()) position = sent.insert(sent.end(), {value, {}});
      position->to.emplace_back(to, int(slot));
    }
  return sent;
}

StagePlan plan_stages(const ModelTrace& trace, const std::vector<int>& cuts) {
  StagePlan plan;
  plan.stages = int(cuts.size()) + 1;
  plan.calls.resize(trace.calls.size());
  plan.inputs.resize(plan.stages);
  plan.owners.resize(trace.state.size());
  int last_end = -1;
  for (int cut : cuts) {
    const TracedCall& call = trace.calls.at(cut);
    if (!can_end_a_stage(call))
      throw ValueError("Pipeline", "a stage cannot end after '", call.path,
                       "': ", call.in_checkpoint ? "it is within a checkpoint" : "it is the whole model");
    if (call.end <= last_end)
      throw ValueError("Pipeline", "a stage cannot end after '", call.path,
                       "': no module is called between this cut and the one before");
    last_end = call.end;
    plan.calls[cut].ends_stage = true;
    for (int outer = call.parent; outer >= 0; outer = trace.calls[outer].parent)
      plan.calls[outer].role = Role::kNested;  // temporary mark: the call contains a cut
  }
  // Outermost calls without a nested cut get kOneStage, the calls nested in them kNested.
  for (size_t i = 0; i < trace.calls.size();) {
    if (plan.calls[i].role == Role::kNested) {
      plan.calls[i++].role = Role::kEveryStage;
      continue;
    }
    plan.calls[i].role = Role::kOneStage;
    for (int inner = int(i) + 1; inner < trace.calls[i].end; ++inner) plan.calls[inner].role = Role::kNested;
    i = trace.calls[i].end;
  }
  Planner(trace, plan).run();
  return plan;
}

std::vector<int> cuts_after(const ModelTrace& trace, const std::vector<std::string>& paths) {
  std::vector<int> cuts;
  for (const std::string& path : paths) {
    std::vector<int> found;
    std::string possible;
    for (size_t i = 0; i < trace.calls.size(); ++i) {
      const TracedCall& call = trace.calls[i];
      if (!can_end_a_stage(call)) continue;
      if (call.path == path) found.push_back(int(i));
      possible += " " + call.path;
    }
    if (found.size() != 1)
      throw ValueError("Pipeline", "expected a module that is called once to cut after, got '", path,
                       "', which is called ", found.size(), " times; there are:", possible);
    cuts.push_back(found[0]);
  }
  std::ranges::sort(cuts, {}, [&](int c) { return trace.calls[c].end; });
  return cuts;
}

}  // namespace gradus::dist::internal
