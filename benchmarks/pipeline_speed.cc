// Benchmark of pipeline steps of real models, compared with a simulation of the schedule. The simulation uses
// times of isolated stages, measured while the other ranks run the same work.
#include <cmath>
#include <map>
#include <memory>

#include "benchmarks/pipeline_cases.h"
#include "benchmarks/pipeline_models.h"
#include "gradus/distributed/pipeline/executor.h"
#include "gradus/distributed/pipeline/staged_model.h"

namespace gradus::bench {
namespace {

using dist::Schedule;

// Returns the maximum over the ranks.
double slowest(double seconds) {
  const Tensor x = tensor({seconds});
  dist::all_reduce(x, {.op = dist::ReduceOp::kMax});
  return x.item<double>();
}

void clear(const GradManager& gm) {
  for (Tensor p : gm.attached_tensors()) p.set_grad({});
}

// A pipeline that trains without an optimizer.
struct Trainer {
  Trainer(const PipelineModel& m, const dist::PipelineOptions& options)
      : model(m), pipe(m.make, m.input(1), options) {
    pipe.attach(gm);
  }
  void step(const Tensor& x, const Tensor& y) {
    pipe.step(gm, x, y, model.loss);
    clear(gm);
  }
  const PipelineModel& model;
  dist::Pipeline<nn::Layer> pipe;
  GradManager gm;
};

// Runs all stages of a model on each rank without messages: all forwards of a stage, then those of the next stage,
// then the backwards in reverse order.
class IsolatedStages {
 public:
  IsolatedStages(const PipelineModel& model, int stages, bool in_parts, const dist::Group& this_rank)
      : model_(model),
        lists_(lists(stages, in_parts)),
        staged_({.make = model.make,
                 .forward =
                     [](nn::Module& net, std::span<const Tensor> x) {
                       return std::vector{static_cast<nn::Layer&>(net)(x[0])};
                     },
                 .inputs = {model.input(1)},
                 .cut_after = model.cuts.at(stages),
                 .rank_of_stage = lists_.rank_of_stage}),
        executor_(staged_, this_rank),
        input_(model.input(model.rows)),
        target_(model.target(model.rows)) {
    for (const auto& [name, parameter] : staged_.named_parameters()) gm_.attach(parameter);
    executor_.recorder().record_last(1);
  }

  // Returns each stage's times, averaged over the ranks, which measure concurrently.
  std::vector<dist::StageTimes> measure() {
    dist::internal::StepWork work{.gm = &gm_};
    work.inputs.assign(kMicroBatches, {input_});
    work.compute = [this](int, bool is_last_stage) {
      const Tensor output = static_cast<nn::Layer&>(staged_.module())(input_);
      return is_last_stage ? model_.loss(output, target_) * (1.0 / kMicroBatches) : Tensor();
    };
    dist::barrier();
    executor_.run(lists_, work);
    clear(gm_);
    const auto& steps = executor_.recorder().steps();
    dist::PipelineRecord record;
    record.ranks.push_back({.steps = {steps.begin(), steps.end()}});
    auto times = dist::stage_times(dist::make_report(record));
    for (dist::StageTimes& t : times) {
      const Tensor mean = tensor({t.forward, t.input_gradient, t.weight_gradient});
      dist::all_reduce(mean, {.op = dist::ReduceOp::kMean});
      const auto values = mean.to_vector<double>();
      t = {values[0], values[1], values[2]};
    }
    return times;
  }

 private:
  static constexpr int kMicroBatches = 4;

  static dist::ActionLists lists(int stages, bool in_parts) {
    dist::ActionLists lists =
        make_schedule(Schedule::kLoopedBreadthFirst,
                      {.ranks = 1, .stages_per_rank = stages, .micro_batches = kMicroBatches});
    std::vector<dist::Action> all;
    for (dist::Action a : lists.of_rank[0]) {
      const bool cut = in_parts && a.kind == dist::ActionKind::kBackward;
      if (cut) a.kind = dist::ActionKind::kInputGradient;
      all.push_back(a);
      if (cut) a.kind = dist::ActionKind::kWeightGradient, all.push_back(a);
    }
    lists.of_rank[0] = all;
    return lists;
  }

  const PipelineModel& model_;
  const dist::ActionLists lists_;
  dist::internal::StagedModel staged_;
  dist::internal::Executor executor_;
  GradManager gm_;
  Tensor input_, target_;
};

// The reference without a pipeline: gradient accumulation over micro-batches on one rank.
class PlainLoop {
 public:
  explicit PlainLoop(const PipelineModel& model) : model_(model), net_(model.make()) {
    gm_.attach(net_->parameters());
  }
  void step(const Tensor& x, const Tensor& y, int micro_batches) {
    for (int k = 0; k < micro_batches; ++k) {
      auto recording = gm_.record();
      const Tensor loss = model_.loss((*net_)(narrow(x, 0, k * model_.rows, model_.rows)),
                                      narrow(y, 0, k * model_.rows, model_.rows));
      gm_.backward(micro_batches == 1 ? loss : loss * (1.0 / micro_batches));
      loss.item<double>();
    }
    clear(gm_);
  }

 private:
  const PipelineModel& model_;
  std::unique_ptr<nn::Layer> net_;
  GradManager gm_;
};

// A schedule with a number of micro-batches: step times per round, measured on the slowest rank and
// simulated.
struct Side {
  std::string name;
  Schedule schedule;
  int micro_batches;
  dist::ActionLists lists;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> seconds, theory;
  int stages() const { return lists.stages(); }
  // Whether the backward runs as separate gradients of the input and of the weights.
  bool in_parts() const { return schedule == Schedule::kZeroBubbleH1 || schedule == Schedule::kZeroBubbleV; }
};

std::vector<Side> sides_of(const PipelineModel& model, const PipelineArgs& args) {
  std::vector<Side> sides;
  for (const int m : args.micro_batches)
    for (const std::string& name : args.schedules) {
      Side s{.name = name, .schedule = dist::parse_schedule_name(name), .micro_batches = m};
      const dist::ScheduleOptions o{.ranks = dist::get_world_size(),
                                    .stages_per_rank = has_two_stages_per_rank(s.schedule) ? 2 : 1,
                                    .micro_batches = m,
                                    .extra_warmup = s.schedule == Schedule::k1F1BSlowLinks ? 1 : 0};
      s.lists = make_schedule(s.schedule, o);
      if (!model.cuts.contains(s.stages())) continue;
      s.trainer =
          std::make_unique<Trainer>(model, dist::PipelineOptions{.interleave = o.stages_per_rank,
                                                                 .schedule = s.schedule,
                                                                 .extra_warmup = o.extra_warmup,
                                                                 .micro_batches = m,
                                                                 .cut_after = model.cuts.at(s.stages())});
      sides.push_back(std::move(s));
    }
  return sides;
}

// Compares the speedup of zb-h1 over 1f1b with the simulated speedup.
void add_gain(const PipelineModel& model, const std::vector<Side>& sides, PipelineCases& cases) {
  const Side *plain = nullptr, *zero = nullptr;
  for (const Side& s : sides) {
    if (s.micro_batches != 2 * s.lists.ranks()) continue;
    if (s.schedule == Schedule::k1F1B) plain = &s;
    if (s.schedule == Schedule::kZeroBubbleH1) zero = &s;
  }
  if (!plain || !zero) return;
  const double measured = median(plain->seconds) / median(zero->seconds) - 1;
  const double theory = median(plain->theory) / median(zero->theory) - 1;
  cases.add({.name = concat(model.name, ": gain of zb-h1 over 1f1b, M ", plain->micro_batches),
             .unit = "%",
             .measured = 100 * measured,
             .theory = 100 * theory,
             .ratio = measured / theory,
             .condition = PipelineCase::kAtLeast,
             .limit = 0.7});
}

// Times all schedules of a model, and gradient accumulation on rank 0 with one thread and with one per rank.
void compare(const PipelineModel& model, const PipelineArgs& args, PipelineCases& cases) {
  const bool first = dist::get_rank() == 0;
  const int ranks = dist::get_world_size(), most = *std::ranges::max_element(args.micro_batches);
  cases.title(concat(model.name, ", ", model.rows, " rows in a micro-batch: a step"));
  std::vector<Side> sides = sides_of(model, args);
  std::map<std::pair<int, bool>, std::unique_ptr<IsolatedStages>> alone;
  const dist::Group this_rank = dist::new_subgroups(1);
  for (const Side& s : sides) {
    auto& stages = alone[{s.stages(), s.in_parts()}];
    if (!stages) stages = std::make_unique<IsolatedStages>(model, s.stages(), s.in_parts(), this_rank);
  }
  PlainLoop loop(model);
  const Tensor x = model.input(most * model.rows), y = model.target(most * model.rows);
  std::vector<double> one_thread, all_threads, one_rank_theory;
  for (int round = -1; round < args.rounds; ++round) {  // round -1 is a warm-up
    std::map<std::pair<int, bool>, std::vector<dist::StageTimes>> times;
    for (auto& [key, stages] : alone) times[key] = stages->measure();
    for (Side& s : sides) {
      const int64_t rows = s.micro_batches * model.rows;
      dist::barrier();
      const double seconds =
          slowest(seconds_of([&] { s.trainer->step(narrow(x, 0, 0, rows), narrow(y, 0, 0, rows)); }));
      if (round < 0) continue;
      s.seconds.push_back(seconds);
      s.theory.push_back(simulate(s.lists, times[{s.stages(), s.in_parts()}]).makespan);
    }
    for (const int threads : {1, ranks}) {
      set_num_threads(threads);
      dist::barrier();
      const double seconds = slowest(first ? seconds_of([&] { loop.step(x, y, most); }) : 0);
      if (round >= 0) (threads == 1 ? one_thread : all_threads).push_back(seconds);
    }
    set_num_threads(1);
    double all = 0;
    for (const dist::StageTimes& t : times.begin()->second)
      all += most * (t.forward + t.input_gradient + t.weight_gradient);
    if (round >= 0) one_rank_theory.push_back(all);
  }
  if (args.reports)
    for (Side& s : sides) {
      const int64_t rows = s.micro_batches * model.rows;
      s.trainer->pipe.record_steps(args.rounds);
      for (int i = 0; i < args.rounds; ++i) s.trainer->step(narrow(x, 0, 0, rows), narrow(y, 0, 0, rows));
      const auto record = s.trainer->pipe.gather_records();
      cases.title(concat(s.name, ", M ", s.micro_batches));
      if (record) cases.title(to_string(make_report(*record)));
      s.trainer->pipe.record_steps(0);
      const auto times = alone[{s.stages(), s.in_parts()}]->measure();
      for (size_t i = 0; i < times.size(); ++i)
        cases.title(concat("stage ", i, " alone: F ", 1e3 * times[i].forward, " ms, I ",
                           1e3 * times[i].input_gradient, ", W ", 1e3 * times[i].weight_gradient));
    }
  if (!first) return;
  for (const Side& s : sides) {
    std::vector<double> ratios;
    for (size_t i = 0; i < s.seconds.size(); ++i) ratios.push_back(s.seconds[i] / s.theory[i]);
    cases.add({.name = concat(model.name, ": ", s.name, ", M ", s.micro_batches),
               .unit = "ms",
               .measured = 1e3 * median(s.seconds),
               .theory = 1e3 * median(s.theory),
               .ratio = median(ratios),
               .limit = 1.10});
  }
  for (const Side& s : sides) {
    if (s.schedule != Schedule::k1F1B || s.micro_batches != most) continue;
    const double speedup = median(one_thread) / median(s.seconds);
    const double predicted = median(one_rank_theory) / median(s.theory);
    cases.add({.name = concat(model.name, ": 1f1b, times faster than one rank of one thread"),
               .unit = "",
               .measured = speedup,
               .theory = predicted,
               .ratio = speedup / predicted,
               .condition = PipelineCase::kAtLeast,
               .limit = 0.9});
    cases.add({.name = concat(model.name, ": one rank of ", ranks, " threads / 1f1b"),
               .unit = "ms",
               .measured = 1e3 * median(all_threads),
               .theory = 1e3 * median(s.seconds),
               .ratio = median(all_threads) / median(s.seconds)});
  }
  add_gain(model, sides, cases);
}

}  // namespace

void speed_of_models(const PipelineArgs& args, PipelineCases& cases) {
  set_num_threads(1);
  for (const std::string& name : args.models) compare(pipeline_model(name), args, cases);
}

void pipeline_of_one_rank(const PipelineArgs& args, PipelineCases& cases) {
  set_num_threads(1);
  cases.title("P = 1, M = 1: a step, against the plain loop");
  for (const std::string& name : args.models) {
    const PipelineModel model = pipeline_model(name);
    Trainer trainer(model, {.stages = 1, .micro_batches = 1});
    PlainLoop loop(model);
    const Tensor x = model.input(model.rows), y = model.target(model.rows);
    std::vector<double> pipeline, plain;
    for (int i = -1; i < 3 * args.rounds; ++i) {
      const double seconds = seconds_of([&] { trainer.step(x, y); });
      const double by_hand = seconds_of([&] { loop.step(x, y, 1); });
      if (i >= 0) pipeline.push_back(seconds), plain.push_back(by_hand);
    }
    std::vector<double> ratios;
    for (size_t i = 0; i < plain.size(); ++i) ratios.push_back(pipeline[i] / plain[i]);
    cases.add({.name = name,
               .unit = "ms",
               .measured = 1e3 * median(pipeline),
               .theory = 1e3 * median(plain),
               .ratio = median(ratios),
               .limit = 1.02});
  }
}

}  // namespace gradus::bench
