// Benchmark of a pipeline's automatic choices (cuts into stages, number of micro-batches) against the
// optimum, and of the overhead of recording steps.
#include <algorithm>
#include <cmath>
#include <memory>

#include "benchmarks/pipeline_cases.h"
#include "benchmarks/pipeline_models.h"
#include "gradus/distributed/pipeline/auto_micro_batches.h"
#include "gradus/distributed/pipeline/step_recorder.h"

namespace gradus::bench {
namespace {

constexpr int kDefaultMicroBatches = 16;  // a batch has this many micro-batches of PipelineModel::rows rows
constexpr int kMaxSteps = 20;             // maximal number of steps until the choice must be final
constexpr int kMaxMicroBatches = 64;      // maximal number of micro-batches in the sweep

// Returns the reduction of x over the ranks.
double over_ranks(double x, dist::ReduceOp op) {
  const Tensor all = tensor({x});
  dist::all_reduce(all, {.op = op});
  return all.item<double>();
}

// A pipeline that trains without an optimizer, and gives access to its automatic choice.
class MeasuredPipeline : public dist::Pipeline<nn::Layer> {
 public:
  MeasuredPipeline(const PipelineModel& model, int64_t example_rows, const dist::PipelineOptions& options)
      : Pipeline(model.make, model.input(example_rows), options), loss_(model.loss) {
    attach(gm_);
  }
  // Runs a step. Returns the seconds of the slowest rank.
  double train(const Tensor& x, const Tensor& y) {
    dist::barrier();
    const double own = seconds_of([&] { step(gm_, x, y, loss_); });
    for (Tensor p : gm_.attached_tensors()) p.set_grad({});
    return over_ranks(own, dist::ReduceOp::kMax);
  }
  const dist::internal::AutoMicroBatches& choice() const { return *auto_micro_batches_; }

 private:
  std::function<Tensor(const Tensor&, const Tensor&)> loss_;
  GradManager gm_;
};

// Compares the chosen number of micro-batches with all divisors of the batch up to kMaxMicroBatches.
void compare_micro_batches(const PipelineModel& model, const PipelineArgs& args, PipelineCases& cases) {
  const int64_t rows = kDefaultMicroBatches * model.rows;
  const Tensor x = model.input(rows), y = model.target(rows);
  const dist::PipelineOptions cuts{.cut_after = model.cuts.at(dist::get_world_size())};
  MeasuredPipeline chooser(model, model.rows, cuts);
  int steps = 0;
  do chooser.train(x, y);
  while (++steps < kMaxSteps && !chooser.choice().done());
  const int chosen = chooser.choice().micro_batches_for(rows);
  const bool agreed = over_ranks(chosen, dist::ReduceOp::kMin) == over_ranks(chosen, dist::ReduceOp::kMax);
  if (dist::get_rank() == 0) std::printf("%s", chooser.describe().c_str());

  struct Side {
    int number;
    std::unique_ptr<MeasuredPipeline> pipe;
    std::vector<double> seconds = {};
  };
  std::vector<Side> sides;
  for (int number = 1; number <= std::min<int64_t>(rows, kMaxMicroBatches); ++number)
    if (rows % number == 0) {
      dist::PipelineOptions o = cuts;
      o.micro_batches = number;
      sides.push_back({number, std::make_unique<MeasuredPipeline>(model, model.rows, o)});
    }
  for (int round = -1; round < args.rounds; ++round)  // round -1 is a warm-up
    for (Side& s : sides) {
      const double seconds = s.pipe->train(x, y);
      if (round >= 0) s.seconds.push_back(seconds);
    }
  const auto time = [](const Side& s) { return median(s.seconds); };
  const Side& best = *std::ranges::min_element(sides, {}, time);
  const auto own = std::ranges::find(sides, chosen, &Side::number);
  if (own == sides.end()) throw StateError("pipeline", "chosen were ", chosen, " micro-batches of ", rows);
  const double predicted = chooser.choice().best_choice().makespan;
  std::vector<double> ratios;
  for (size_t i = 0; i < best.seconds.size(); ++i) ratios.push_back(own->seconds[i] / best.seconds[i]);
  cases.add({.name = concat(model.name, ": M ", chosen, ", chosen; best: M ", best.number),
             .unit = "ms",
             .measured = 1e3 * time(*own),
             .theory = 1e3 * time(best),
             .ratio = median(ratios),
             .limit = 1.05});
  cases.add({.name = concat(model.name, ": the same beside what was predicted"),
             .unit = "ms",
             .measured = 1e3 * time(*own),
             .theory = 1e3 * predicted,
             .ratio = time(*own) / predicted,
             .condition = PipelineCase::kWithin,
             .limit = 0.07});
  cases.add({.name = concat(model.name, ": steps until it was chosen", agreed ? "" : ", NOT on all ranks"),
             .unit = "",
             .measured = double(steps),
             .theory = double(kMaxSteps),
             .ratio = agreed ? double(steps) / kMaxSteps : INFINITY,
             .limit = 1});
}

// Returns the reports of steps with kDefaultMicroBatches micro-batches.
std::vector<dist::PipelineReport> reports_of(MeasuredPipeline& pipe, const PipelineModel& model, int steps) {
  const Tensor x = model.input(kDefaultMicroBatches * model.rows),
               y = model.target(kDefaultMicroBatches * model.rows);
  pipe.train(x, y);
  pipe.record_steps(steps);
  for (int i = 0; i < steps; ++i) pipe.train(x, y);
  auto reports = step_reports(pipe);
  pipe.record_steps(0);
  return reports;
}

// Compares the slowest stage of automatic cuts with the mean over stages.
void balance_of_cuts(const PipelineModel& model, const PipelineArgs& args, PipelineCases& cases) {
  MeasuredPipeline pipe(model, model.rows, {.micro_batches = kDefaultMicroBatches});
  const auto reports = reports_of(pipe, model, args.rounds);
  if (dist::get_rank() > 0) return;
  std::printf("%s", pipe.describe().c_str());
  std::vector<double> largest, mean;
  for (const dist::PipelineReport& r : reports) {
    std::vector<double> seconds;
    for (const dist::StageTimes& t : stage_times(r))
      seconds.push_back(t.forward + t.input_gradient + t.weight_gradient);
    largest.push_back(std::ranges::max(seconds));
    mean.push_back(0);
    for (const double s : seconds) mean.back() += s / double(seconds.size());
  }
  std::vector<double> ratios;
  for (size_t i = 0; i < mean.size(); ++i) ratios.push_back(largest[i] / mean[i]);
  cases.add({.name = concat(model.name, ": slowest stage of the chosen cuts, and the mean"),
             .unit = "ms",
             .measured = 1e3 * median(largest),
             .theory = 1e3 * median(mean),
             .ratio = median(ratios),
             .limit = 1.08});
}

// Compares recorded steps with unrecorded steps, and measures the calls of a disabled recorder.
void cost_of_records(const PipelineModel& model, const PipelineArgs& args, PipelineCases& cases) {
  MeasuredPipeline pipe(
      model, model.rows,
      {.micro_batches = kDefaultMicroBatches, .cut_after = model.cuts.at(dist::get_world_size())});
  const Tensor x = model.input(kDefaultMicroBatches * model.rows),
               y = model.target(kDefaultMicroBatches * model.rows);
  pipe.train(x, y);
  std::vector<double> on, off, ratios;
  for (int i = 0; i < 2 * args.rounds; ++i)
    for (const bool records : {i % 2 == 0, i % 2 == 1}) {
      pipe.record_steps(records ? 1 : 0);
      (records ? on : off).push_back(pipe.train(x, y));
    }
  for (size_t i = 0; i < on.size(); ++i) ratios.push_back(on[i] / off[i]);
  cases.add({.name = concat(model.name, ": a step recorded, and not"),
             .unit = "ms",
             .measured = 1e3 * median(on),
             .theory = 1e3 * median(off),
             .ratio = median(ratios),
             .limit = 1.02});

  constexpr int kCalls = 1'000'000;
  dist::internal::StepRecorder recorder;
  const Tensor none;
  const double seconds = seconds_of([&] {
    for (int i = 0; i < kCalls; ++i) {
      recorder.begin({});
      recorder.begin_message();
      recorder.received(0, {}, none);
      recorder.begin_message();
      recorder.sent(0, {}, none);
      recorder.end();
    }
  });
  const double per_step = seconds / kCalls * 2 * kDefaultMicroBatches;  // one F and one B per micro-batch
  cases.add({.name = concat(model.name, ": a step, and without a recorder that is off"),
             .unit = "ms",
             .measured = 1e3 * median(off),
             .theory = 1e3 * (median(off) - per_step),
             .ratio = median(off) / (median(off) - per_step),
             .limit = 1.01});
}

}  // namespace

void choices_of_pipelines(const PipelineArgs& args, PipelineCases& cases) {
  set_num_threads(1);
  for (const std::string& name : args.models) {
    const PipelineModel model = pipeline_model(name);
    cases.title(concat(name, ", ", kDefaultMicroBatches * model.rows, " rows in a batch"));
    balance_of_cuts(model, args, cases);
    compare_micro_batches(model, args, cases);
    cost_of_records(model, args, cases);
  }
}

}  // namespace gradus::bench
