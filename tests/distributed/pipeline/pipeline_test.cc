// Pipelines against the undivided model.
#include "gradus/distributed/pipeline/pipeline.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <type_traits>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/schedule_check.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/distributed/pipeline/unet_training.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

// What a training ends with: the losses, and all parameters by name.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> parameters;
};

constexpr int kSteps = 5;

template <class M> struct Case;
template <> struct Case<ResidualMLP> {
  static Tensor input(int64_t rows, int step) { return random_tensor({rows, 6}, DType::kF64, 10 + step); }
  static Tensor target(int64_t rows, int step) { return random_tensor({rows, 3}, DType::kF64, 20 + step); }
  static Tensor loss(const Tensor& y, const Tensor& t) { return nn::mse_loss(y, t); }
  static std::vector<std::string> cuts(int stages) {
    if (stages == 1) return {};
    if (stages == 2) return {"b1"};
    if (stages == 4) return {"b0", "b1", "b2"};
    return {"in", "b0.fc1", "b0", "b1", "b2.fc1", "b2", "b3"};
  }
};
template <> struct Case<TiedText> {
  static Tensor input(int64_t rows, int step) {
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < rows * 5; ++i) tokens.push_back((i * i + step * 7 + i) % 11);
    return tensor(tokens, {rows, 5});
  }
  static Tensor target(int64_t rows, int step) { return input(rows, step + 1); }
  static Tensor loss(const Tensor& y, const Tensor& t) {
    return nn::cross_entropy(flatten(y, 0, 1), flatten(t, 0, 1));
  }
  static std::vector<std::string> cuts(int stages) {
    if (stages == 1) return {};
    if (stages == 2) return {"b0"};
    if (stages == 4) return {"b0", "b1", "b2"};
    return {"embed", "b0.norm", "b0", "b1.norm", "b1", "b2.norm", "b2"};
  }
};

template <class M> std::unique_ptr<M> make() {
  auto model = std::make_unique<M>();
  model->to(DType::kF64);
  return model;
}

template <class M> Trained undivided(int64_t rows) {
  manual_seed(5);
  const auto model = make<M>();
  GradManager gm;
  gm.attach(model->parameters());
  optim::SGD opt(model->parameters(), {.lr = 0.1, .momentum = 0.9});
  Trained trained;
  for (int i = 0; i < kSteps; ++i) {
    auto recording = gm.record();
    const Tensor loss = Case<M>::loss((*model)(Case<M>::input(rows, i)), Case<M>::target(rows, i));
    gm.backward(loss);
    opt.step().clear_grad();
    trained.losses.push_back(loss.item<double>());
  }
  for (const auto& [name, p] : model->named_parameters())
    trained.parameters[name] = p.template to_vector<double>();
  return trained;
}

double difference(const Trained& got, const Trained& want) {
  double worst = 0;
  const auto compare = [&](const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return void(worst = INFINITY);
    double largest = 1e-300, most = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(b[i]));
      most = std::max(most, a[i] == b[i] ? 0 : std::abs(a[i] - b[i]));
    }
    worst = std::max(worst, most / largest);
  };
  compare(got.losses, want.losses);
  for (const auto& [name, values] : got.parameters) compare(values, want.parameters.at(name));
  return worst;
}

// Trains on `ranks` threads. Returns what each rank has.
template <class M>
std::vector<Trained> in_pipeline(int ranks, int64_t rows, PipelineOptions options, bool on_devices = false) {
  if (on_devices)
    for (int i = 0; i < ranks; ++i) options.devices.push_back({DeviceType::kCPU, int16_t(i)});
  std::vector<Trained> trained(on_devices ? 1 : ranks);
  options.stages = ranks;
  options.cut_after = Case<M>::cuts(ranks * options.interleave);
  run_ranks(int(trained.size()), [&] {
    manual_seed(5);
    Pipeline<M> pipe(make<M>, Case<M>::input(2, 0), options);
    GradManager gm;
    pipe.attach(gm);
    optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
    Trained& mine = trained[get_rank()];
    for (int i = 0; i < kSteps; ++i) {
      mine.losses.push_back(pipe.step(gm, Case<M>::input(rows, i), Case<M>::target(rows, i), Case<M>::loss));
      opt.step().clear_grad();
    }
    for (const auto& [name, p] : pipe.named_parameters())
      mine.parameters[name] = p.template to_vector<double>();
  });
  return trained;
}

template <class M> void expect_undivided(bool on_devices = false) {
  for (const int64_t rows : {16, 13}) {
    const Trained want = undivided<M>(rows);
    for (Schedule schedule : {Schedule::kGPipe, Schedule::kGPipeLIFO, Schedule::k1F1B,
                              Schedule::k1F1BSlowLinks, Schedule::kInterleaved1F1B,
                              Schedule::kLoopedBreadthFirst, Schedule::kZeroBubbleH1, Schedule::kZeroBubbleV})
      for (const int ranks : {1, 2, 4})
        for (const int micro_batches : {1, 2, 4, 8}) {
          PipelineOptions options{.schedule = schedule, .micro_batches = micro_batches};
          const bool loops = schedule == Schedule::kInterleaved1F1B ||
                             schedule == Schedule::kLoopedBreadthFirst || schedule == Schedule::kZeroBubbleV;
          if (loops) options.interleave = 2;
          if (schedule == Schedule::k1F1BSlowLinks) options.extra_warmup = 1;
          std::set<std::string> seen;
          for (const Trained& got : in_pipeline<M>(ranks, rows, options, on_devices)) {
            EXPECT_LE(difference(got, want), 1e-12)
                << name_of(schedule) << " P " << ranks << " M " << micro_batches << " rows " << rows;
            EXPECT_EQ(got.losses.size(), size_t(kSteps));
            for (const auto& [name, values] : got.parameters) seen.insert(name);
          }
          EXPECT_EQ(seen.size(), want.parameters.size());
        }
  }
}

TEST(Pipeline, TrainsAResidualMLPAsOneProcessDoes) { expect_undivided<ResidualMLP>(); }
TEST(Pipeline, TrainsAModelWithTiedWeightsAsOneProcessDoes) { expect_undivided<TiedText>(); }
TEST(Pipeline, TrainsAResidualMLPOnSeveralDevices) { expect_undivided<ResidualMLP>(true); }
TEST(Pipeline, TrainsAModelWithTiedWeightsOnSeveralDevices) { expect_undivided<TiedText>(true); }

// Chosen cuts and micro-batches, norms, evaluation and results, where all stages are in one process.
TEST(Pipeline, DoesOnDevicesWhatItDoesOnRanks) {
  const auto train = [](int ranks, PipelineOptions options) {
    std::vector<double> seen;
    std::mutex mutex;
    run_ranks(ranks, [&] {
      manual_seed(5);
      Pipeline<TiedText> pipe(make<TiedText>, Case<TiedText>::input(4, 0), options);
      GradManager gm;
      pipe.attach(gm);
      optim::SGD opt(pipe.parameters(), {.lr = 0.1});
      std::vector<double> mine;
      for (int i = 0; i < 9; ++i) {
        mine.push_back(
            pipe.step(gm, Case<TiedText>::input(8, i), Case<TiedText>::target(8, i), Case<TiedText>::loss));
        mine.push_back(pipe.clip_grad_norm_(0.5));
        opt.step().clear_grad();
      }
      pipe.eval();
      mine.push_back(
          pipe.eval_step(Case<TiedText>::input(7, 9), Case<TiedText>::target(7, 9), Case<TiedText>::loss));
      const Tensor y = pipe.forward(Case<TiedText>::input(5, 3), {.everywhere = true});
      mine.push_back(sum(y * y).item<double>());
      EXPECT_EQ(pipe.stages(), 2);
      const std::lock_guard lock(mutex);
      seen = mine;
    });
    return seen;
  };
  const Device one{DeviceType::kCPU, 1}, two{DeviceType::kCPU, 2};
  const auto want = train(2, {.micro_batches = 2, .cut_after = {"b0"}});
  for (const auto& options :
       {PipelineOptions{.devices = {one, two}},
        PipelineOptions{.devices = {one, two}, .micro_batches = 3, .recompute = Recompute::kAlways}}) {
    const auto got = train(1, options);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12 * std::max(1.0, want[i])) << i;
  }
  EXPECT_THROW(train(1, {.stages = 3, .devices = {one, two}}), ValueError);
}

// Dropout, batch norm and clipping included.
TEST(Pipeline, GivesTheBitsOfTheLoopOverMicroBatches) {
  for (const int micro_batches : {1, 3, 8}) {
    const auto want = train_unet(1, {.micro_batches = micro_batches});
    EXPECT_EQ(want.size(), 5u * 2 + 5 + 1);
    for (Schedule schedule : {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1})
      for (const int ranks : {2, 4})
        EXPECT_EQ(train_unet(ranks, {.schedule = schedule, .micro_batches = micro_batches}), want)
            << name_of(schedule) << " P " << ranks << " M " << micro_batches;
    for (Schedule schedule : {Schedule::kInterleaved1F1B, Schedule::kZeroBubbleV})
      EXPECT_EQ(train_unet(3, {.interleave = 2, .schedule = schedule, .micro_batches = micro_batches}), want)
          << name_of(schedule) << " M " << micro_batches;
  }
}

// Each of two replicas has half of the rows.
TEST(Pipeline, ReplicasTrainAsOneProcessDoesOnTheJoinedBatch) {
  const auto check = []<class M>(std::type_identity<M>) {
    const Trained want = undivided<M>(16);
    for (Schedule schedule :
         {Schedule::kGPipe, Schedule::k1F1B, Schedule::kZeroBubbleH1, Schedule::kZeroBubbleV}) {
      const int depth = schedule == Schedule::kZeroBubbleV ? 2 : 1;
      run_ranks(4, [&] {
        manual_seed(5);
        PipelineOptions options{.stages = 2, .interleave = depth, .schedule = schedule, .micro_batches = 3};
        options.cut_after = Case<M>::cuts(2 * depth);
        Pipeline<M> pipe(make<M>, Case<M>::input(2, 0), options);
        GradManager gm;
        pipe.attach(gm);
        optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
        Trained mine;
        const int64_t half = get_rank() / 2;
        EXPECT_EQ(Job::current()->replica(), (Replica{int(half), 2}));
        for (int i = 0; i < kSteps; ++i) {
          mine.losses.push_back(pipe.step(gm, narrow(Case<M>::input(16, i), 0, half * 8, 8),
                                          narrow(Case<M>::target(16, i), 0, half * 8, 8), Case<M>::loss));
          opt.step().clear_grad();
        }
        for (const auto& [name, p] : pipe.named_parameters())
          mine.parameters[name] = p.template to_vector<double>();
        EXPECT_LE(difference(mine, want), 1e-12) << name_of(schedule);
      });
    }
  };
  check(std::type_identity<ResidualMLP>());
  check(std::type_identity<TiedText>());
}

// Two steps before the optimizer's give the sum of two losses' gradients, ties included.
TEST(Pipeline, StepsMayAccumulate) {
  run_ranks(2, [] {
    const auto grads = [](int micro_batches) {
      manual_seed(5);
      Pipeline<TiedText> pipe(make<TiedText>, Case<TiedText>::input(2, 0),
                              {.micro_batches = micro_batches, .cut_after = {"b0"}});
      GradManager gm;
      pipe.attach(gm);
      for (int i = 0; i < 2; ++i)
        pipe.step(gm, Case<TiedText>::input(4, i), Case<TiedText>::target(4, i), Case<TiedText>::loss);
      std::vector<Tensor> all;
      for (const Tensor& p : pipe.parameters()) all.push_back(p.grad());
      return all;
    };
    manual_seed(5);
    const auto model = make<TiedText>();
    GradManager gm;
    gm.attach(model->parameters());
    for (int i = 0; i < 2; ++i) {
      auto recording = gm.record();
      gm.backward(Case<TiedText>::loss((*model)(Case<TiedText>::input(4, i)), Case<TiedText>::target(4, i)));
    }
    manual_seed(5);
    Pipeline<TiedText> pipe(make<TiedText>, Case<TiedText>::input(2, 0), {.cut_after = {"b0"}});
    const auto names = pipe.named_parameters();
    for (const int micro_batches : {1, 3}) {
      const auto got = grads(micro_batches);
      for (size_t i = 0; i < got.size(); ++i)
        expect_near(got[i], model->parameter((names.begin() + std::ptrdiff_t(i))->first).grad(), 1e-12);
    }
  });
}

// Ignored targets lie unevenly over micro-batches and replicas. One micro-batch has no other.
TEST(Pipeline, ALossMayBeASumOrAMeanOverValidTargets) {
  const Tensor x = Case<TiedText>::input(12, 0);
  Tensor t = Case<TiedText>::target(12, 0);
  for (int64_t i = 0; i < t.numel(); ++i)
    if (i < 15 || i % 7 < 3) t.ptr<int64_t>()[i] = -100;
  const auto flat = [](const Tensor& y) { return flatten(y, 0, 1); };
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
    const auto loss = [&](const Tensor& y, const Tensor& target) {
      return nn::cross_entropy(flat(y), flatten(target, 0, 1), {.reduction = reduction});
    };
    manual_seed(5);
    const auto model = make<TiedText>();
    GradManager whole;
    whole.attach(model->parameters());
    auto recording = whole.record();
    const Tensor want = loss((*model)(x), t);
    whole.backward(want);
    for (const int ranks : {2, 4})
      run_ranks(ranks, [&] {
        manual_seed(5);
        Pipeline<TiedText> pipe(make<TiedText>, Case<TiedText>::input(2, 0),
                                {.stages = 2, .micro_batches = 4, .cut_after = {"b0"}});
        GradManager gm;
        pipe.attach(gm);
        const int64_t rows = 12 / (ranks / 2), begin = get_rank() / 2 * rows;
        const double got = pipe.step(gm, narrow(x, 0, begin, rows), narrow(t, 0, begin, rows), loss,
                                     {.reduction = reduction, .ignore_index = -100});
        EXPECT_NEAR(got, want.item<double>(), 1e-12 * want.item<double>());
        for (const auto& [name, p] : pipe.named_parameters())
          expect_near(p.grad(), model->parameter(name).grad(), 1e-12);
      });
  }
}

TEST(Pipeline, RunsListsOfTheUsersOwn) {
  const Trained want = undivided<ResidualMLP>(16);
  const std::vector<std::string> lists = {"0F0 0F1 0F2 0B1 0I0 0B2 0W0 2F0 2F1 2B1 2I0 2F2 2W0 2B2",
                                          "1F1 1F0 1F2 1B1 1B0 1B2"};
  EXPECT_THROW(in_pipeline<ResidualMLP>(2, 16, {.interleave = 2, .lists = lists}), ScheduleError);
  const std::vector<std::string> good = {"0F0 0F1 0F2 2F0 2F1 2I1 2W1 2F2 2I0 2B2 0I1 2W0 0B0 0W1 0B2",
                                         "1F1 1F0 1F2 1B1 1I0 1B2 1W0"};
  run_ranks(2, [&] {
    manual_seed(5);
    Pipeline<ResidualMLP> pipe(make<ResidualMLP>, Case<ResidualMLP>::input(2, 0),
                               {.lists = good, .cut_after = {"b0", "b1"}});
    GradManager gm;
    pipe.attach(gm);
    optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
    Trained mine;
    for (int i = 0; i < kSteps; ++i) {
      mine.losses.push_back(pipe.step(gm, Case<ResidualMLP>::input(16, i), Case<ResidualMLP>::target(16, i),
                                      Case<ResidualMLP>::loss));
      opt.step().clear_grad();
    }
    for (const auto& [name, p] : pipe.named_parameters()) mine.parameters[name] = p.to_vector<double>();
    EXPECT_LE(difference(mine, want), 1e-12);
    EXPECT_THROW(pipe.step(gm, Case<ResidualMLP>::input(2, 0), Case<ResidualMLP>::target(2, 0),
                           Case<ResidualMLP>::loss),
                 ShapeError);
  });
}

TEST(Pipeline, ARankHoldsItsOwnStagesOnly) {
  run_ranks(2, [] {
    Pipeline<ResidualMLP> pipe(make<ResidualMLP>, random_tensor({2, 6}, DType::kF64), {.cut_after = {"b1"}});
    for (const auto& [name, p] : pipe.module().named_parameters()) {
      const bool first = name.starts_with("in") || name.starts_with("b0") || name.starts_with("b1");
      EXPECT_EQ(p.device().type == DeviceType::kCPU, first == (get_rank() == 0)) << name;
    }
  });
}

}  // namespace
}  // namespace gradus::dist
