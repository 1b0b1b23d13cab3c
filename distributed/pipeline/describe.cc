// PipelineBase::describe(): the text of a pipeline's split into stages, one line per stage. Counts layers and
// parameters from the traced module calls and their stages (StageSplit), and adds the measured times and the
// memory of the automatic choice of recomputation, if there was one. "runs again" means that the backward
// recomputes the stage's forward.
#include <algorithm>
#include <iomanip>
#include <set>
#include <sstream>

#include "gradus/distributed/pipeline/auto_micro_batches.h"
#include "gradus/distributed/pipeline/pipeline_base.h"
#include "gradus/distributed/pipeline/staged_model.h"

namespace gradus::dist::internal {

std::string PipelineBase::describe() {
  const auto cached = model_->split_for(example_);
  const StageSplit& split = *cached;
  const nn::StateDict parameters = model_->module().named_parameters();
  const RecomputeChoice* choice = auto_micro_batches_ ? &auto_micro_batches_->best_choice() : nullptr;
  const auto modes = choice ? choice->of_stage : std::vector(size_t(stages()), options_.recompute);
  const std::vector<StageTimes>& times = choice ? choice->stages : layout_.times;
  std::ostringstream text;
  text << std::setprecision(3);
  double slowest = 0, total = 0;
  for (int s = 0; s < stages(); ++s) {
    std::set<const nn::Module*> modules;  // modules without nested calls (layers)
    std::string last;                     // the last module of the stage; empty for the last stage
    for (size_t i = 0; i < split.trace.calls.size(); ++i) {
      const TracedCall& call = split.trace.calls[i];
      if (split.plan.calls[i].stage == s && call.end == int(i) + 1) modules.insert(call.module);
      if (split.plan.calls[i].stage == s && split.plan.calls[i].ends_stage) last = call.path;
    }
    int64_t elements = 0;
    for (size_t i = 0; i < split.trace.state.size(); ++i)
      if (split.plan.reads(s, i) && parameters.contains(split.trace.state[i]))
        elements += parameters.at(split.trace.state[i]).numel();
    text << "stage " << s << " on ";
    if (model_->has_devices())
      text << model_->device_of(s);
    else
      text << "rank " << model_->rank_of(s);
    if (!last.empty()) text << ", to " << last;
    text << ": " << modules.size() << (modules.size() == 1 ? " layer, " : " layers, ") << elements
         << " parameters";
    if (int(times.size()) == stages()) {
      const StageTimes& t = times[size_t(s)];
      const double sum = (t.recomputed ? 2 : 1) * t.forward + t.input_gradient + t.weight_gradient;
      slowest = std::max(slowest, sum);
      total += sum;
      text << "; " << 1e3 * t.forward << " ms forward, " << 1e3 * (sum - t.forward) << " ms backward";
    }
    int64_t bytes = 0;
    std::string from;
    for (const StageInputSource& need : split.plan.inputs[s]) {
      if (need.call < 0) continue;
      bytes += split.result(need).nbytes();
      from += (from.empty() ? "" : ", ") + split.trace.calls[need.call].path;
    }
    if (s > 0) text << "; receives " << bytes << " bytes from " << from;
    if (modes[size_t(s)] == Recompute::kAlways) text << "; runs again";
    if (modes[size_t(s)] == Recompute::kExceptLast) text << "; runs again unless its backward follows";
    text << "\n";
  }
  if (total > 0) text << "the slowest stage takes " << slowest * stages() / total << " times the mean\n";
  if (!choice && options_.recompute == Recompute::kAuto)
    text << "the first training step chooses which stages run again\n";
  if (choice && options_.memory_limit > 0)
    text << "a rank needs at most " << int64_t(choice->peak_bytes()) << " of " << options_.memory_limit
         << " bytes\n";
  if (auto_micro_batches_ && chooses_micro_batches()) text << auto_micro_batches_->describe();
  return text.str();
}

}  // namespace gradus::dist::internal
