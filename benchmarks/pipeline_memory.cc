// Benchmark of pipeline memory: the peak memory of a step against (micro-batches in flight) * (bytes per
// micro-batch). Zero-bubble schedules (Qi et al., ICLR 2024) split a backward into the gradient of the input
// (I) and the gradient of the weights (W).
#include <algorithm>

#include "benchmarks/pipeline_cases.h"
#include "benchmarks/pipeline_models.h"

namespace gradus::bench {
namespace {

using dist::ActionKind;
using dist::Schedule;

constexpr int kMicroBatches = 8;

struct Measured {
  double kept = 0;         // bytes saved by the forward of a micro-batch, per stage of the rank
  double between = 0;      // bytes still saved between I and W
  double received = 0;     // bytes received from other ranks per micro-batch
  double peak = 0;         // peak of the step, minus the memory before the step
  int64_t parameters = 0;  // bytes of parameters
  int64_t first_peak = 0;  // peak during construction, before the first step
};

// Bytes on one rank in a recorded step: all live tensors after the last forward (kept) and after the last input
// gradient (between), and received as in Measured.
struct RankBytes {
  int64_t kept = 0, between = 0, received = 0;
};

RankBytes rank_bytes_of(const dist::StepRecord& step) {
  RankBytes n;
  for (const dist::ActionRecord& a : step.actions) {
    if (a.action.kind == ActionKind::kForward) n.kept = a.held_bytes;
    if (a.action.kind == ActionKind::kInputGradient) n.between = a.held_bytes;
  }
  for (const dist::MessageRecord& m : step.messages)
    if (m.received && !m.gradient && m.micro_batch == 0) n.received += m.bytes;
  return n;
}

Measured measure(const PipelineModel& model, Schedule schedule, int micro_batches,
                 dist::Recompute recompute = dist::Recompute::kNever) {
  const int64_t before = memory_stats().live_bytes;
  reset_peak_memory();
  const int depth = has_two_stages_per_rank(schedule) ? 2 : 1;
  dist::Pipeline<nn::Layer> pipe(model.make, model.input(1),
                                 {.interleave = depth,
                                  .schedule = schedule,
                                  .micro_batches = micro_batches,
                                  .cut_after = model.cuts.at(dist::get_world_size() * depth),
                                  .recompute = recompute});
  Measured m;
  m.first_peak = memory_stats().peak_bytes - before;
  for (const Tensor& p : pipe.parameters()) m.parameters += p.nbytes();
  GradManager gm;
  pipe.attach(gm);
  optim::SGD opt(pipe.parameters(), {.lr = 0.01, .momentum = 0.9});
  const Tensor x = model.input(micro_batches * model.rows), y = model.target(micro_batches * model.rows);
  pipe.step(gm, x, y, model.loss);  // creates gradients; opt.step() creates momenta
  opt.step();
  dist::barrier();
  const int64_t base = memory_stats().live_bytes;
  reset_peak_memory();
  pipe.record_steps(1);
  pipe.step(gm, x, y, model.loss);
  m.peak = double(memory_stats().peak_bytes - base);
  const auto text = [&](const dist::PipelineRecord& record) {
    // One serialized element per rank, for scatter_object.
    std::vector<std::string> parts;
    for (const dist::RankRecord& r : record.ranks) {
      const RankBytes n = rank_bytes_of(r.steps[0]);
      parts.push_back(dist::to_wire(std::vector{n.kept, n.between, n.received}));
    }
    return parts;
  };
  const auto record = pipe.gather_records();
  const auto local = dist::from_wire<std::vector<int64_t>>(
      dist::scatter_object(record ? text(*record) : std::vector<std::string>()));
  m.kept = double(local[0] - base) / depth;
  m.between = double(local[1] - base) / depth;
  m.received = double(local[2]);
  return m;
}

// Returns the peak of the saved bytes while a rank runs its list of actions. A micro-batch adds one.kept in
// its forward; one.between of these are left between I and W.
double peak_bytes_of(const std::vector<dist::Action>& list, const Measured& one) {
  double bytes = 0, peak_bytes = 0;
  for (const dist::Action& a : list) {
    switch (a.kind) {
      case ActionKind::kForward:
        bytes += one.kept;
        break;
      case ActionKind::kBackward:
        bytes -= one.kept;
        break;
      case ActionKind::kInputGradient:
        bytes += one.between - one.kept;
        break;
      case ActionKind::kWeightGradient:
        bytes -= one.between;
    }
    peak_bytes = std::max(peak_bytes, bytes);
  }
  return peak_bytes;
}

}  // namespace

void memory_of_ranks(const PipelineArgs& args, PipelineCases& cases) {
  set_num_threads(1);
  const PipelineModel model = pipeline_model("gpt");
  const auto add = [&](const std::string& name, double measured, double theory,
                       PipelineCase::Condition condition, double limit) {
    const auto all = dist::all_gather_object(dist::to_wire(std::pair(measured, theory)));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto [got, want] = dist::from_wire<std::pair<double, double>>(all[rank]);
      cases.add({.name = concat(name, ", rank ", rank),
                 .unit = "MB",
                 .measured = 1e-6 * got,
                 .theory = 1e-6 * want,
                 .ratio = got / want,
                 .condition = condition,
                 .limit = limit});
    }
  };
  cases.title(concat(dist::get_world_size(), " processes, M ", kMicroBatches, ": peak of a step"));
  for (const std::string& name : args.schedules) {
    const Schedule s = dist::parse_schedule_name(name);
    // The peak of `all` is predicted from a step with a single micro-batch.
    const Measured one = measure(model, s, 1), all = measure(model, s, kMicroBatches);
    const int depth = has_two_stages_per_rank(s) ? 2 : 1;
    const dist::ActionLists lists = make_schedule(
        s, {.ranks = dist::get_world_size(), .stages_per_rank = depth, .micro_batches = kMicroBatches});
    const double rest = one.peak - depth * one.kept;  // temporary memory
    add(name, all.peak, peak_bytes_of(lists.of_rank[size_t(dist::get_rank())], one) + rest,
        PipelineCase::kWithin, 0.10);
    if (s == Schedule::kZeroBubbleH1)  // a: one.kept; t: rest
      add(concat(name, ", at most 4 a + t"), all.peak, dist::get_world_size() * one.kept + rest,
          PipelineCase::kAtMost, 1);
    if (s == Schedule::kGPipe || s == Schedule::k1F1B) {
      const Measured again = measure(model, s, kMicroBatches, dist::Recompute::kAlways);
      const dist::RankPrediction own =
          dist::simulate(lists, std::vector<dist::StageTimes>(size_t(lists.stages()), {1, 1, 1}))
              .ranks[size_t(dist::get_rank())];
      // The inputs of the other micro-batches in flight, and the peak of recomputing one micro-batch.
      add(concat(name, ", run again"), again.peak, double(own.max_in_flight - 1) * one.received + one.peak,
          PipelineCase::kWithin, 0.10);
    }
    if (&name == &args.schedules.front())
      add("all since the start / own parameters", double(one.first_peak), double(one.parameters),
          PipelineCase::kAtMost, 1.05);
  }
}

}  // namespace gradus::bench
