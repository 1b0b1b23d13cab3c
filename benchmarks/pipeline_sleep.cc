// Benchmark of the pipeline executor with stages that sleep instead of computing, so that many stages can run on
// few cores. Step times are compared with dist::simulate. I and W are the backward's gradients of the input
// and of the weights, which zero-bubble schedules run separately.
#include <chrono>
#include <cmath>
#include <thread>

#include "benchmarks/pipeline_cases.h"

namespace gradus::bench {
namespace {

using dist::Schedule;

struct Sleeps {
  double forward = 0.010, input_gradient = 0.010, weight_gradient = 0.010;  // seconds
  double latency = 0;     // emulated latency: a stage waits until a message is this old, in seconds
  int64_t numbers = 512;  // number of f64 elements per message
  bool in_parts = false;  // the backward sleeps separately in I and W
  bool first = false, last = false;
};

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Returns a message whose first element is the current time. Ranks on one host share the clock.
Tensor message_with_time(int64_t numbers, Device device) {
  Tensor x = empty({1, numbers}, {.dtype = DType::kF64, .device = device});
  if (device.type != DeviceType::kMeta) *x.mutable_data<double>() = seconds_now();
  return x;
}
// Sleeps until the message is `latency` seconds old.
void wait_for(const Tensor& message, double latency) {
  if (latency > 0) sleep(*message.data<double>() + latency - seconds_now());
}

// Copies the weight. The backward sleeps in place of W, if I and W are separate.
struct SleepingWeight : autograd::Function {
  explicit SleepingWeight(const Sleeps& s) : sleeps(s) {}
  std::vector<Tensor> forward(const std::vector<Tensor>& xs) override { return {clone(xs[0])}; }
  std::vector<Tensor> backward(std::vector<Tensor> dys) override {
    if (sleeps.in_parts) sleep(sleeps.weight_gradient);
    return dys;
  }
  const Sleeps sleeps;
};

// Sleeps in place of the forward, and in the backward in place of I (and W, if they are not separate).
struct SleepingRule : autograd::Function {
  explicit SleepingRule(const Sleeps& s) : sleeps(s) {}
  std::vector<Tensor> forward(const std::vector<Tensor>& xs) override {
    const Device device = xs[0].device();
    const Tensor made_at =
        clone(narrow(xs[0], 1, 0, 1));  // an op that reads the input, for the trace of the model
    if (device.type != DeviceType::kMeta) {
      if (!sleeps.first) wait_for(made_at, sleeps.latency);
      sleep(sleeps.forward);
    }
    return {message_with_time(sleeps.last ? 1 : sleeps.numbers, device)};
  }
  std::vector<Tensor> backward(std::vector<Tensor> dys) override {
    if (!sleeps.last) wait_for(dys[0], sleeps.latency);
    sleep(sleeps.input_gradient + (sleeps.in_parts ? 0 : sleeps.weight_gradient));
    return {message_with_time(sleeps.numbers, kCPU), ones({1}, {.dtype = DType::kF64})};
  }
  const Sleeps sleeps;
};

struct SleepingStage : nn::Layer {
  SleepingStage(Module* parent, std::string name, const Sleeps& s)
      : Layer(parent, std::move(name)), sleeps(s) {}
  const Sleeps sleeps;
  nn::Parameter weight{this, "weight", ones({1}, {.dtype = DType::kF64})};
  Tensor forward(const Tensor& x) override {
    return autograd::apply<SleepingRule>({x, autograd::apply<SleepingWeight>({weight}, sleeps)[0]},
                                         sleeps)[0];
  }
};

struct SleepingModel : nn::Layer {
  SleepingModel(int count, Sleeps s) {
    for (int i = 0; i < count; ++i) {
      s.first = i == 0, s.last = i + 1 == count;
      stages.add(s);
    }
  }
  nn::ModuleList<SleepingStage> stages{this, "stages"};
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (auto& stage : stages) y = stage(y);
    return y;
  }
};

bool in_parts(Schedule s) { return s == Schedule::kZeroBubbleH1 || s == Schedule::kZeroBubbleV; }

dist::ScheduleOptions options_of(Schedule s, int micro_batches) {
  return {.ranks = dist::get_world_size(),
          .stages_per_rank = has_two_stages_per_rank(s) ? 2 : 1,
          .micro_batches = micro_batches,
          .extra_warmup = s == Schedule::k1F1BSlowLinks ? 1 : 0};
}

// Runs steps of sleeping stages. Returns their reports on the first rank.
std::vector<dist::PipelineReport> run(Schedule schedule, int micro_batches, Sleeps sleeps, int rounds,
                                      std::vector<double>* step_seconds = nullptr) {
  const dist::ScheduleOptions o = options_of(schedule, micro_batches);
  const int stages = o.ranks * o.stages_per_rank;
  sleeps.in_parts = in_parts(schedule);
  std::vector<std::string> cuts;
  for (int i = 0; i + 1 < stages; ++i) cuts.push_back(concat("stages.", i));
  const Tensor x = zeros({micro_batches, sleeps.numbers}, {.dtype = DType::kF64});
  const Tensor target = zeros({micro_batches, 1});
  dist::Pipeline<SleepingModel> pipe([&] { return std::make_unique<SleepingModel>(stages, sleeps); },
                                     narrow(x, 0, 0, 1),
                                     {.interleave = o.stages_per_rank,
                                      .schedule = schedule,
                                      .extra_warmup = o.extra_warmup,
                                      .micro_batches = micro_batches,
                                      .cut_after = cuts});
  GradManager gm;
  pipe.attach(gm);
  const auto step = [&] {
    dist::barrier();
    return seconds_of(
        [&] { pipe.step(gm, x, target, [](const Tensor& y, const Tensor&) { return sum(y); }); });
  };
  step();
  // If step_seconds is not null, alternates recorded and unrecorded steps, and times the unrecorded ones.
  for (int i = 0; step_seconds && i < 2 * rounds; ++i) {
    pipe.record_steps(i % 2);
    step_seconds->push_back(step());
  }
  pipe.record_steps(rounds);
  for (int i = 0; i < rounds; ++i) step();
  return step_reports(pipe);
}

// Returns the actual duration of a sleep while the other ranks sleep concurrently.
double measured_sleep(double seconds) {
  constexpr int kRepetitions = 20;
  dist::barrier();
  return seconds_of([&] {
           for (int i = 0; i < kRepetitions; ++i) sleep(seconds);
         }) /
         kRepetitions;
}

// Predicts step times from the real durations of the sleeps.
struct Theory {
  double forward = measured_sleep(0.010), backward = measured_sleep(0.020);

  // Returns the prediction of simulate(). The first stage's input has no gradient: the stage sleeps in W for both
  // parts.
  dist::SchedulePrediction of(Schedule s, int micro_batches, double latency = 0) const {
    const dist::ActionLists lists = make_schedule(s, options_of(s, micro_batches));
    std::vector<dist::StageTimes> times(size_t(lists.stages()), {forward, backward, 0});
    if (in_parts(s)) {
      for (auto& t : times) t.input_gradient = t.weight_gradient = forward;
      times[0].input_gradient = 0, times[0].weight_gradient = 2 * forward;
    }
    return simulate(lists, times, latency);
  }
};

double makespan(const dist::PipelineReport& r) { return r.makespan; }

void compare_makespans(const PipelineArgs& args, const Theory& theory, PipelineCases& cases) {
  for (const int m : args.micro_batches)
    for (const std::string& name : args.schedules) {
      const Schedule s = dist::parse_schedule_name(name);
      const auto reports = run(s, m, {}, args.rounds);
      if (reports.empty()) continue;
      const double measured = median_of(reports, makespan), predicted = theory.of(s, m).makespan;
      cases.add({.name = concat(name, ", M ", m),
                 .unit = "ms",
                 .measured = 1e3 * measured,
                 .theory = 1e3 * predicted,
                 .ratio = measured / predicted,
                 .limit = 1.03});
    }
}

// Measures the fraction of the step that ranks wait for messages after they were sent.
void send_large_messages(const PipelineArgs& args, PipelineCases& cases) {
  for (const Schedule s : {Schedule::k1F1B, Schedule::k1F1BSlowLinks}) {
    const auto reports = run(s, 32, {.numbers = (4 << 20) / 8}, args.rounds);
    if (reports.empty()) continue;
    const double exposed = median_of(reports, [](const dist::PipelineReport& r) {
      double seconds = 0;
      for (const auto& rank : r.ranks) seconds += rank.communication;
      return seconds / double(r.ranks.size());
    });
    const double whole = median_of(reports, makespan);
    cases.add({.name = concat(name_of(s), ", M 32, messages of 4 MiB: exposed"),
               .unit = "ms",
               .measured = 1e3 * exposed,
               .theory = 1e3 * whole,
               .ratio = exposed / whole,
               .limit = 0.05});
  }
}

// Measures the executor's time per forward or backward that does not sleep, and the time to record one.
void run_empty_actions(const PipelineArgs& args, PipelineCases& cases) {
  constexpr int kMicroBatches = 64;
  std::vector<double> seconds;
  const auto reports = run(Schedule::kGPipe, kMicroBatches, {0, 0, 0, 0, 512}, 20 * args.rounds, &seconds);
  if (reports.empty()) return;
  const double each = median_of(reports, makespan) / (2 * kMicroBatches);
  cases.add({.name = "an empty action with a message of 4 KiB",
             .unit = "us",
             .measured = 1e6 * each,
             .theory = 60,
             .ratio = each / 60e-6,
             .limit = 1});
  std::vector<double> plain, recorded;
  for (size_t i = 0; i < seconds.size(); i += 2)
    plain.push_back(seconds[i]), recorded.push_back(seconds[i + 1]);
  const double recording = (median(recorded) - median(plain)) / (2 * kMicroBatches);
  cases.add({.name = "recording an action, against one of 1 ms",
             .unit = "us",
             .measured = 1e6 * recording,
             .theory = 1e3,
             .ratio = recording / 1e-3,
             .limit = 0.02});
}

// Measures steps with a latency of 5 ms per message. 1F1B with an extra warm-up micro-batch per rank should
// hide the latency except while the pipeline fills and drains (ideal).
void send_over_slow_links(const PipelineArgs& args, const Theory& theory, PipelineCases& cases) {
  constexpr int kMicroBatches = 64;
  constexpr double kLatency = 0.005;
  const int ranks = dist::get_world_size();
  for (const Schedule s : {Schedule::k1F1B, Schedule::k1F1BSlowLinks}) {
    const auto reports = run(s, kMicroBatches, {.latency = kLatency}, args.rounds);
    if (reports.empty()) continue;
    const double measured = median_of(reports, makespan);
    const double ideal =
        (kMicroBatches + ranks - 1) * (theory.forward + theory.backward) + 2 * (ranks - 1) * kLatency;
    const double predicted = s == Schedule::k1F1B ? theory.of(s, kMicroBatches, kLatency).makespan : ideal;
    cases.add({.name = concat(name_of(s), ", M 64, latency of 5 ms"),
               .unit = "ms",
               .measured = 1e3 * measured,
               .theory = 1e3 * predicted,
               .ratio = measured / predicted,
               .condition = PipelineCase::kWithin,
               .limit = 0.05});
  }
}

}  // namespace

void sleeping_stages(const PipelineArgs& args, PipelineCases& cases) {
  const int ranks = dist::get_world_size();
  const Theory theory;
  cases.title(concat(ranks, " sleeping processes: makespan of a step"));
  compare_makespans(args, theory, cases);
  if (ranks == 2) {
    send_large_messages(args, cases);
    run_empty_actions(args, cases);
  }
  if (ranks == 4) send_over_slow_links(args, theory, cases);
}

}  // namespace gradus::bench
