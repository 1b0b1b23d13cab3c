// training::Training of a dist::Pipeline: resuming with other numbers of stages and replicas, or without a
// pipeline; unfit checkpoints change nothing; each sample counts once. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>

#include "gradus/gradus.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/io/testing.h"

namespace gradus {
namespace {

using testing::Each;
using testing::HasSubstr;

// 48 points of the plane and scalar targets.
data::TensorDataset points() {
  std::vector<float> x(96), y(48);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(float(i));
  for (size_t i = 0; i < y.size(); ++i) y[i] = std::cos(3 * float(i));
  return data::TensorDataset(tensor(x, {48, 2}), tensor(y, {48, 1}));
}

struct Net : nn::Layer {
  explicit Net(int64_t width)
      : a(this, "a", {.in = 2, .out = width}),
        drop(this, "drop", {.p = 0.1}),
        b(this, "b", {.in = width, .out = width}),
        c(this, "c", {.in = width, .out = 1}) {}
  nn::Linear a;
  nn::Dropout drop;
  nn::Linear b, c;
  Tensor forward(const Tensor& x) override { return c(tanh(b(drop(tanh(a(x)))))); }
};

struct Setting {
  int stages = 2, replicas = 1;
  int64_t width = 6;
  training::RunOptions run = {};
  std::string network = "small", program = "points";
  int64_t stop_after = 0;  // leave the loop after so many steps, without a checkpoint; 0: run to the end
};

// The result of a run on all ranks.
struct Outcome {
  std::map<std::string, std::vector<float>> parameters;
  std::vector<double> losses;
  std::vector<std::string> errors;  // of each rank
  int64_t steps = 0, seen = 0;      // seen: samples of the last line of the log
  bool operator==(const Outcome&) const = default;
};

// Trains on stages * replicas ranks.
Outcome train_points(const Setting& s) {
  Outcome all;
  std::mutex mutex;
  all.errors = dist::errors_of(s.stages * s.replicas, [&] {
    set_num_threads(1);
    manual_seed(s.run.seed);
    dist::PipelineOptions options{.stages = s.stages, .micro_batches = 2};
    for (int i = 1; i < s.stages; ++i) options.cut_after.push_back(i == 1 ? "a" : "b");
    dist::Pipeline<Net> pipe([&] { return std::make_unique<Net>(s.width); }, zeros({2, 2}), options);
    GradManager gm;
    pipe.attach(gm);
    optim::Adam opt(pipe.parameters(), {.lr = 0.01});
    optim::StepLR schedule(opt, {.step_size = 3, .gamma = 0.9});
    data::DataLoader loader(points(), {.global_batch_size = 12, .shuffle = true, .seed = 3});
    const std::vector<Tensor> before = [&] {
      std::vector<Tensor> copies;
      for (const Tensor& p : pipe.parameters()) copies.push_back(clone(p));
      return copies;
    }();
    training::Training training(s.program, s.run, loader, {{pipe, opt}, {"schedule", schedule}},
                                {.fixed = {{"network", s.network}}});
    std::vector<double> losses;
    int64_t steps = 0;
    try {
      for (training::Step& step : training) {
        if (s.stop_after > 0 && steps++ == s.stop_after) break;
        losses.push_back(
            step.log("loss", pipe.step(gm, step.batch().input, step.batch().target, nn::mse_loss)));
        opt.step().clear_grad();
        schedule.step();
      }
    } catch (const Error&) {
      if (losses.empty()) {  // refused: nothing has changed
        const std::vector<Tensor> now = pipe.parameters();
        for (size_t i = 0; i < now.size(); ++i)
          EXPECT_EQ(now[i].to_vector<float>(), before[i].to_vector<float>());
      }
      throw;
    }
    const std::lock_guard lock(mutex);
    all.losses = losses;
    all.steps = training.steps();
    all.seen = training.recent().seen;
    for (const auto& [name, p] : pipe.named_parameters())
      EXPECT_EQ(all.parameters.emplace(name, p.to_vector<float>()).first->second, p.to_vector<float>())
          << name;
  });
  return all;
}

training::RunOptions saving(const Scratch& dir) {
  return {.iterations = 11, .log_interval = 1, .checkpoint_dir = dir / "c", .checkpoint_interval = 2};
}

TEST(TrainingInAPipeline, GoesOnInTheMiddleOfAnEpochToTheSameBits) {
  for (const int replicas : {1, 2}) {
    Scratch straight, dir;
    const Outcome want = train_points({.replicas = replicas, .run = saving(straight)});
    EXPECT_THAT(want.errors, Each(""));
    EXPECT_EQ(want.losses.size(), 11u);
    EXPECT_EQ(want.seen, 12);  // each sample once, however many ranks have seen it
    Setting s = {.replicas = replicas, .run = saving(dir), .stop_after = 7};
    train_points(s);
    s.stop_after = 0;
    s.run.seed = 8;  // the checkpoint's seed counts
    Outcome got = train_points(s);
    EXPECT_EQ(got.losses.size(), 5u);  // the last checkpoint was that of step 6
    got.losses.insert(got.losses.begin(), want.losses.begin(), want.losses.begin() + 6);
    EXPECT_EQ(got, want);
  }
}

// Other divisions sum in another order; eleven Adam steps of 0.01 keep the difference of f32 roundings below
// 1e-4.
void expect_near(const Outcome& got, const Outcome& want) {
  ASSERT_EQ(got.parameters.size(), want.parameters.size());
  for (const auto& [name, values] : want.parameters)
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got.parameters.at(name)[i], values[i], 1e-4) << name;
}

TEST(TrainingInAPipeline, AnyDivisionGoesOnFromAnyOther) {
  Scratch straight;
  const Outcome want = train_points({.stages = 1, .run = saving(straight)});
  const std::pair<int, int> divisions[] = {{1, 1}, {3, 1}, {1, 2}};
  for (const auto& [stages, replicas] : divisions) {
    Scratch dir;
    ASSERT_THAT(
        train_points({.stages = stages, .replicas = replicas, .run = saving(dir), .stop_after = 5}).errors,
        Each(""));
    for (const auto& [later, more] : divisions) {
      Scratch other;
      std::filesystem::create_directory(other / "c");
      std::filesystem::copy(dir / "c/points.ckpt", other / "c/points.ckpt");
      const Outcome got = train_points({.stages = later, .replicas = more, .run = saving(other)});
      EXPECT_THAT(got.errors, Each(""));
      EXPECT_EQ(got.steps, 11);
      // Replicas have different dropout masks.
      if (replicas == 1 && more == 1) expect_near(got, want);
    }
  }
}

TEST(TrainingInAPipeline, RefusesAnotherTrainingBeforeAnythingChanges) {
  Scratch dir;
  const Setting good = {.run = saving(dir)};
  ASSERT_THAT(train_points(good).errors, Each(""));
  const auto expect_refused = [&](Setting s, const std::string& text) {
    s.run.resume = dir / "c/points.ckpt";
    s.run.checkpoint_dir = "";
    const Outcome got = train_points(s);
    EXPECT_THAT(got.errors, Each(HasSubstr(text)));
    EXPECT_THAT(got.errors, Each(got.errors[0]));
  };
  expect_refused({.network = "large"}, "points.ckpt was trained with network small, not with large");
  expect_refused({.width = 8, .network = "large"}, "was trained with network small, not with large");
  expect_refused({.program = "lines"}, "points.ckpt: expected a checkpoint of lines, got one of points");
  expect_refused({.width = 8}, "does not fit");
  expect_refused({.stages = 3, .width = 8}, "does not fit");
}

// ---- TrainingState without a Training ----

TEST(TrainingStateOfAPipeline, IsThatOfAModelAndItsOptimizer) {
  Scratch dir;
  const auto with_pipe = [&](int stages, const auto& body) {
    dist::run_ranks(stages, [&] {
      manual_seed(5);
      dist::PipelineOptions options{.stages = stages, .micro_batches = 1};
      if (stages > 1) options.cut_after = {"a"};
      dist::Pipeline<Net> pipe([] { return std::make_unique<Net>(4); }, zeros({1, 2}), options);
      GradManager gm;
      pipe.attach(gm);
      optim::Adam opt(pipe.parameters(), {.lr = 0.01});
      pipe.step(gm, ones({4, 2}), ones({4, 1}), nn::mse_loss);
      opt.step().clear_grad();
      body(pipe, opt);
    });
  };
  with_pipe(2, [&](auto& pipe, auto& opt) {
    int64_t steps = 7;
    TrainingState state{{pipe, opt}, {"steps", steps}};
    EXPECT_FALSE(state.resume(dir / "s"));
    io::Checkpoint more;
    more.put("program", "test");
    state.save(dir / "s", more);
    EXPECT_EQ(state.optimizers().size(), 1u);
    state.check_synchronized();

    steps = 0;
    EXPECT_TRUE(state.resume(dir / "s"));
    EXPECT_EQ(steps, 7);
    EXPECT_THROW((TrainingState{{pipe, opt}, {"model", steps}}), ValueError);
    EXPECT_THROW((TrainingState{{pipe, opt}, {"optimizer.lr", steps}}), ValueError);
    EXPECT_THROW((TrainingState{{pipe, opt}, {pipe, opt}}), ValueError);
    EXPECT_THROW((TrainingState({{pipe, opt}}, {.group = dist::new_group({0, 1})})), ValueError);
  });
  // Without a pipeline.
  Net net(4);
  optim::Adam opt(net.parameters(), {.lr = 0.5});
  int64_t steps = 0;
  const io::LoadedCheckpoint loaded =
      TrainingState{{"model", net}, {"optimizer", opt}, {"steps", steps}}.load(dir / "s");
  EXPECT_EQ(loaded.checkpoint.get<std::string>("program"), "test");
  EXPECT_EQ(opt.lr(), 0.01);
  EXPECT_EQ(steps, 7);
  TrainingState{{"model", net}, {"optimizer", opt}, {"steps", steps}}.save(dir / "t");
  with_pipe(1, [&](auto& pipe, auto& own) {
    int64_t again = 0;
    TrainingState{{pipe, own}, {"steps", again}}.load(dir / "t");
    EXPECT_EQ(again, 7);
    EXPECT_EQ(pipe.module().c.weight.template to_vector<float>(), net.c.weight.to_vector<float>());
  });
}

// OnNotFinite::kSkip needs a module among the parts of the training, which a pipeline is not.
TEST(TrainingInAPipeline, LeavesNoStepOut) {
  data::DataLoader loader(points(), {.batch_size = 12});
  EXPECT_THROW(training::Training("points", {}, loader, {}, {.on_not_finite = training::OnNotFinite::kSkip}),
               ValueError);
}

// ---- samples counted once per replica ----

TEST(Tally, CountsTheRanksOfAReplicaOnce) {
  Scratch dir;
  dist::run_ranks(4, [&] {
    const dist::Grid grid({{"replica", 2}, {"pipeline", 2}});
    training::Tally tally;
    const int64_t own = 3 + grid.index("replica");
    tally.add({.seen = own, .of = {{"loss", 2.0 * double(own)}}});
    EXPECT_EQ(tally.reduce().seen, 7);
    EXPECT_EQ(tally.total().mean("loss"), 2);
    EXPECT_EQ(tally.reduce().seen, 0);

    data::DataLoader loader(points(), {.global_batch_size = 12, .shuffle = true, .seed = 3});
    manual_seed(5);
    nn::Linear net({.in = 2, .out = 1});
    training::Training training("points", {.epochs = 1, .sample_log = dir / "log"}, loader, {{"model", net}});
    for (training::Step& s : training) s.log({.seen = s.batch().size()});
    EXPECT_EQ(training.images(), 48);
  });
  // One line "from EPOCH SAMPLES", then for each of the 4 steps "EPOCH SAMPLES" and 12 indices.
  std::istringstream words(io::slurp(dir / "log"));
  EXPECT_EQ(std::distance(std::istream_iterator<std::string>(words), {}), 3 + 4 * 2 + 48);
}

}  // namespace
}  // namespace gradus
