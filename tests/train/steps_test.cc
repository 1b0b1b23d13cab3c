// training::Training counted in images: ends, logs, tests, checkpoints, resuming after SIGTERM, random
// numbers by global sample, any number of ranks (threads). And gan::Ema, the average of a generator's
// weights.
#include "gradus/train/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <mutex>

#include "gradus/gradus.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/io/testing.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Points on a line, 48 of them.
struct Points : data::Dataset {
  int64_t size() const override { return 48; }
  data::Sample get(int64_t i) const override {
    return {.input = tensor(std::vector<double>{double(i) / 48, 1 - double(i) / 48}, {2})};
  }
};

struct Mlp : nn::Layer {
  using Layer::Layer;
  nn::Linear first{this, "first", {.in = 2, .out = 8}}, last{this, "last", {.in = 8, .out = 2}};
  Tensor forward(const Tensor& x) override { return last(tanh(first(x))); }
};
struct Gan : nn::Module {
  Mlp gen{this, "gen"}, disc{this, "disc"};
};

// A small WGAN-GP in f64, trained as in docs/guide/gans.md; the generator steps in every second step.
struct Trainer {
  // batch_sizes: first image -> global batch size.
  explicit Trainer(training::RunOptions options, std::map<int64_t, int64_t> batch_sizes = {{0, 12}})
      : run(std::move(options)), sizes(std::move(batch_sizes)) {
    net.to(DType::kF64);
    int64_t i = 0;
    for (const Tensor& p : net.parameters()) {
      std::vector<double> v(size_t(p.numel()));
      for (double& x : v) x = 0.3 * std::sin(double(++i));
      copy_(p, tensor(v, p.shape()));
    }
    ema.emplace(net.gen, gan::EmaOptions{.half_life_images = 50});
  }

  // Returns the final weights and averages. Raises SIGTERM in step `interrupt_at`.
  std::vector<double> train_on(int64_t interrupt_at = 0) {
    dist::SeparateDistributedDataParallel ddp(net);
    ddp.attach(gm_d, net.disc);
    ddp.attach(gm_g, net.gen);
    training::Training training(
        "points", run, loader,
        {{"model", net}, {"optimizer_disc", opt_d}, {"optimizer_gen", opt_g}, {"ema", *ema}});
    for (training::Step& s : training) {
      numbers.push_back(s.number());
      images.push_back(s.images());
      {
        auto recording = gm_d.record();
        const Tensor real = s.batch().input, fake = net.gen(normal(s));
        const Tensor penalty = gan::gradient_penalty(net.disc, real, fake, s.rand());
        gm_d.backward(s.log("loss/d", gan::wgan_d(net.disc(real), net.disc(fake)) + penalty));
        opt_d.step().clear_grad();
      }
      if (s.number() == interrupt_at) std::raise(SIGTERM);
      if (!s.every(2)) continue;
      auto recording = gm_g.record();
      gm_g.backward(s.log("loss/g", gan::wgan_g(net.disc(net.gen(normal(s))))));
      opt_g.step().clear_grad();
      ema->update(s.images());
    }
    std::vector<double> all;
    for (const nn::StateDict& state : {net.state_dict(), ema->weights()})
      for (const auto& [name, t] : state)
        for (const double v : t.to_vector<double>()) all.push_back(v);
    return all;
  }
  static Tensor normal(training::Step& s) { return to(s.randn({2}), DType::kF64); }

  training::RunOptions run;
  Gan net;
  std::map<int64_t, int64_t> sizes;
  data::DataLoader loader{Points(),
                          {.global_batch_sizes = sizes, .shuffle = true, .drop_last = true, .seed = 3}};
  GradManager gm_d, gm_g;
  optim::Adam opt_d{net.disc.parameters(), {.lr = 0.01, .eps = 1e-3}},
      opt_g{net.gen.parameters(), {.lr = 0.01, .eps = 1e-3}};
  std::optional<gan::Ema> ema;
  std::vector<int64_t> numbers, images;
};

TEST(Steps, EndAfterTheImagesThatWereAskedFor) {
  Trainer t({.images = 72});
  t.train_on();
  EXPECT_THAT(t.numbers, ElementsAre(1, 2, 3, 4, 5, 6));  // four per epoch
  EXPECT_THAT(t.images, ElementsAre(12, 24, 36, 48, 60, 72));
}

TEST(Steps, EndAfterIterationsOrEpochsToo) {
  Trainer by_steps({.iterations = 5}), by_epochs({.epochs = 2}), dry({.dry_run = true});
  by_steps.train_on();
  by_epochs.train_on();
  dry.train_on();
  EXPECT_EQ(by_steps.numbers.size(), 5u);
  EXPECT_EQ(by_epochs.numbers.size(), 8u);
  EXPECT_EQ(dry.numbers.size(), 1u);
}

TEST(Steps, OfALoaderWithoutABatchAreAnError) {
  Mlp net;
  data::DataLoader loader(Points(), {.batch_size = 49, .drop_last = true});
  training::Training training("gan", {.images = 10, .workers = 0}, loader, {{"model", net}});
  EXPECT_ERROR(ValueError, training.begin(), "no full batch of 49 among the 48 samples of dataset");
}

TEST(Steps, ThatLogNoFiniteValueEndTheTrainingAndKeepItsCheckpoint) {
  for (const double bad : {double(NAN), double(INFINITY)}) {
    Scratch folder;
    Mlp net;
    data::DataLoader loader(Points(), {.batch_size = 12});
    const training::RunOptions run = {.images = 96, .checkpoint_dir = folder.dir(), .checkpoint_interval = 2};
    int64_t made = 0;
    training::Training training("gan", run, loader, {{"model", net}});
    EXPECT_ERROR(ValueError,
                 for (training::Step& s
                      : training) s.log("loss/d", ++made == 3 ? bad : 0.25),
                 "step 3: loss/d is ", " on rank 0; before it was 0.25; ", "gan.ckpt stays");
    const io::LoadedCheckpoint loaded = io::load_checkpoint(folder / "gan.ckpt");
    EXPECT_EQ(loaded.checkpoint.get<int64_t>("steps"), 2);
  }
}

// A training whose tests return the given values of "fid" in turn. at: the images shown before each test.
struct Tested {
  Tested(const training::RunOptions& run, std::vector<double> given, int64_t every = 36)
      : values(std::move(given)),
        training("gan", run, loader, {{"model", net}},
                 {.test = [this] { return test(); },
                  .test_every = every,
                  .best_by = "fid",
                  .lower_is_better = true,
                  .keep_best = true,
                  .test_line = [](const training::Sums& s) { return concat("fid ", s.mean("fid")); }}) {}
  training::Sums test() {
    at.push_back(training.images());
    return {.seen = 7, .of = {{"fid", values.at(at.size() - 1)}}, .counts = {{"fid", 1}}};
  }
  void train_on(int64_t interrupt_at = 0) {
    for (training::Step& s : training) {
      s.log("loss", 1.0);
      if (s.number() == interrupt_at) std::raise(SIGTERM);
    }
  }

  Mlp net;
  data::DataLoader loader{Points(), {.global_batch_size = 12}};
  std::vector<double> values;
  std::vector<int64_t> at;
  training::Training training;
};

TEST(Steps, AreTestedWheneverSoManyImagesHaveBeenShownAndAtTheEnd) {
  Tested t({.images = 96}, {5, NAN, 3});
  t.train_on();
  EXPECT_THAT(t.at, ElementsAre(36, 72, 96));
  EXPECT_EQ(t.training.best().test.mean("fid"), 3);
  ASSERT_EQ(t.training.history().size(), 3u);
  EXPECT_EQ(t.training.history()[1].images, 72);
  Tested not_a_number({.images = 72}, {NAN, 9});
  not_a_number.train_on();
  EXPECT_EQ(not_a_number.training.best().test.mean("fid"), 9);
  Tested more_than_images({.images = 36}, {1}, 1000);
  more_than_images.train_on();
  EXPECT_THAT(more_than_images.at, ElementsAre(36));
}

// Returns the steps after which a training of 8 steps tests; SIGTERM in step `interrupt_at`.
std::vector<int64_t> tested_at(const training::RunOptions& run, std::vector<int64_t> test_at,
                               int64_t interrupt_at = 0) {
  Mlp net;
  data::DataLoader loader(Points(), {.global_batch_size = 12});
  std::vector<int64_t> steps;
  training::Training training("gan", run, loader, {{"model", net}},
                              {.test =
                                   [&] {
                                     steps.push_back(training.steps());
                                     return training::Sums{.seen = 1};
                                   },
                               .test_at = std::move(test_at)});
  try {
    for (training::Step& s : training)
      if (s.number() == interrupt_at) std::raise(SIGTERM);
  } catch (const training::Interrupted&) {
  }
  return steps;
}

TEST(Steps, AreTestedAtGivenStepsAndAtTheEnd) {
  EXPECT_THAT(tested_at({.iterations = 8}, {2, 5}), ElementsAre(2, 5, 8));
  EXPECT_THAT(tested_at({.iterations = 8}, {8, 4, 100}), ElementsAre(4, 8)) << "4 ends an epoch";
  const Scratch folder;
  const training::RunOptions run = {.iterations = 8, .checkpoint_dir = folder.dir()};
  EXPECT_THAT(tested_at(run, {2, 5}, 5), ElementsAre(2));
  EXPECT_THAT(tested_at(run, {2, 5}), ElementsAre(5, 8)) << "the test that was due when it was interrupted";
}

TEST(Steps, KeepTheCheckpointsOfTheLastSaves) {
  const Scratch folder;
  training::RunOptions run = {.iterations = 8, .checkpoint_dir = folder.dir(), .checkpoint_interval = 2};
  const auto train = [&](int64_t keep_last) {
    dist::run_ranks(2, [&] {
      Mlp net;
      data::DataLoader loader(Points(), {.global_batch_size = 12});
      training::Training training("gan", run, loader, {{"model", net}}, {.keep_last = keep_last});
      for ([[maybe_unused]] training::Step& s : training) {
      }
    });
  };
  const auto kept = [&] {
    std::vector<int64_t> steps;
    for (const std::string& name : folder.names())
      if (name.starts_with("gan.step-")) {
        steps.push_back(io::load_checkpoint(folder / name).checkpoint.get<int64_t>("steps"));
        EXPECT_EQ(name, concat("gan.step-", steps.back(), ".ckpt"));
      }
    return steps;
  };
  train(2);
  EXPECT_THAT(kept(), ElementsAre(6, 8));
  std::ofstream(folder / "gan.step-notes.txt") << "not a checkpoint";
  fs::remove(folder / "gan.step-8.ckpt");
  run.resume = folder / "gan.step-6.ckpt";
  run.iterations = 7;  // an earlier end: the file of step 6 is older than that of step 7
  run.checkpoint_interval = 1;
  train(1);
  EXPECT_TRUE(fs::remove(folder / "gan.step-notes.txt"));
  EXPECT_THAT(kept(), ElementsAre(7));
  EXPECT_ERROR(ValueError, train(-1), "keep_last", "-1");
}

TEST(Steps, KeepTheCheckpointOfTheBestTestAlsoAfterGoingOn) {
  const Scratch folder;
  const training::RunOptions run = {.images = 108, .checkpoint_dir = folder.dir()};
  Tested first(run, {5, 3});
  EXPECT_THROW(first.train_on(7), training::Interrupted);
  EXPECT_THAT(first.at, ElementsAre(36, 72));
  Tested second(run, {4});
  second.train_on();
  EXPECT_THAT(second.at, ElementsAre(108));
  EXPECT_EQ(second.training.best().test.mean("fid"), 3);
  EXPECT_EQ(second.training.last().test.mean("fid"), 4);
  EXPECT_EQ(io::load_checkpoint(folder / "gan.best.ckpt").checkpoint.get<int64_t>("steps"), 6);
  EXPECT_EQ(io::load_checkpoint(folder / "gan.ckpt").checkpoint.get<int64_t>("steps"), 9);
}

// The interruption comes in step 3, before the test that is due after it.
TEST(Steps, MakeATestThatIsDueWhenTheyGoOn) {
  const Scratch folder;
  const training::RunOptions run = {.images = 48, .checkpoint_dir = folder.dir()};
  Tested first(run, {5});
  EXPECT_THROW(first.train_on(3), training::Interrupted);
  EXPECT_TRUE(first.at.empty());
  Tested second(run, {5, 6});
  second.train_on();
  EXPECT_THAT(second.at, ElementsAre(36, 48));
}

TEST(Steps, WhoseTestFailsOnOneRankEndAllRanks) {
  for (const int bad : {0, 1}) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<std::string> texts = dist::errors_of(2, [&] {
      Mlp net;
      data::DataLoader loader(Points(), {.global_batch_size = 12});
      const auto test = [&] {
        if (dist::get_rank() == bad) throw ValueError("metric", "expected finite features");
        return training::Sums{.seen = int64_t(dist::broadcast_object("1", {.src = bad}).size())};
      };
      training::Training training("gan", {.images = 96}, loader, {{"model", net}},
                                  {.test = test, .test_every = 24});
      for (training::Step& s : training) s.log("loss", 1.0);
    });
    EXPECT_THAT(texts[bad], HasSubstr("expected finite features"));
    EXPECT_THAT(texts[1 - bad], HasSubstr("expected finite features"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2)) << bad;
  }
}

TEST(Steps, LogMeansOverTheStepsThatHadAValue) {
  Trainer t({.images = 96, .log_interval = 4});
  testing::internal::CaptureStdout();
  t.train_on();
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("step 4  48 images  loss/d "));
  EXPECT_THAT(log, HasSubstr("step 8  96 images  loss/d "));
  EXPECT_THAT(log, HasSubstr("  loss/g "));

  training::Sums sums = {.seen = 12, .of = {{"a", 6}}, .counts = {{"a", 3}}};
  sums += {.seen = 12, .of = {{"a", 2}, {"b", 5}}, .counts = {{"a", 1}, {"b", 1}}};
  EXPECT_EQ(sums.mean("a"), 2);
  EXPECT_EQ(sums.mean("b"), 5);
}

TEST(Steps, LogMeansOverAllRanks) {
  dist::run_ranks(2, [] {
    training::Tally tally;
    tally.add({.seen = 8, .of = {{"a", dist::get_rank() == 0 ? 2 : 5}}, .counts = {{"a", 1}}});
    EXPECT_EQ(tally.reduce().mean("a"), 3.5);
    EXPECT_EQ(tally.total().seen, 16);
  });
}

TEST(Steps, OfAFinishedTrainingAreNone) {
  const Scratch folder;
  const training::RunOptions run = {.images = 24, .checkpoint_dir = folder.dir()};
  Trainer first(run), second(run);
  const std::vector<double> weights = first.train_on();
  EXPECT_EQ(second.train_on(), weights);
  EXPECT_TRUE(second.numbers.empty());
}

TEST(Steps, SaveAtTheirInterval) {
  const Scratch folder;
  Trainer t({.iterations = 3, .checkpoint_dir = folder.dir(), .checkpoint_interval = 2});
  t.train_on();
  EXPECT_TRUE(fs::exists(folder / "points.ckpt"));
  EXPECT_TRUE(fs::exists(folder / "points.ckpt.previous")) << "after two steps, and at the end";

  const Scratch other;
  Trainer at_the_end_of_a_pass({.iterations = 5, .checkpoint_dir = other.dir(), .checkpoint_interval = 4});
  at_the_end_of_a_pass.train_on();
  EXPECT_TRUE(fs::exists(other / "points.ckpt.previous")) << "after four steps, and at the end";
}

// Changes within the first epoch and within the second, whose last 4 points are dropped.
const std::map<int64_t, int64_t> kSizesThatChange = {{0, 12}, {30, 4}, {60, 8}};

TEST(StepsWhoseBatchChanges, CountTheImagesThatTheyShow) {
  Trainer t({.images = 120}, kSizesThatChange);
  t.train_on();
  EXPECT_THAT(t.images, ElementsAre(12, 24, 36, 40, 44, 48,      // an epoch
                                    52, 56, 60, 68, 76, 84, 92,  // the second
                                    100, 108, 116, 124));
  EXPECT_EQ(t.loader.state().shown, 124);
}

TEST(StepsWhoseBatchChanges, GoOnFromEveryStepToTheSameBits) {
  Trainer whole({.images = 120}, kSizesThatChange);
  const std::vector<double> expected = whole.train_on();
  for (const int64_t stop : whole.numbers) {
    const Scratch folder;
    const training::RunOptions run = {
        .images = 120, .checkpoint_dir = folder.dir(), .checkpoint_interval = stop};
    Trainer first(run, kSizesThatChange), second(run, kSizesThatChange);
    try {
      first.train_on(stop);
    } catch (const training::Interrupted& where) {
      EXPECT_EQ(where.checkpoint, (folder / "points.ckpt").string());
    }
    EXPECT_EQ(second.train_on(), expected) << stop;
    EXPECT_EQ(int64_t(second.numbers.size()), int64_t(whole.numbers.size()) - stop);
  }
}

TEST(StepsWhoseBatchChanges, TrainAlikeOnAnyNumberOfRanks) {
  Trainer one({.images = 120}, kSizesThatChange);
  const std::vector<double> expected = one.train_on();
  for (const int world : {2, 4}) {
    std::mutex mutex;
    dist::run_ranks(world, [&] {
      Trainer t({.images = 120}, kSizesThatChange);
      const std::vector<double> weights = t.train_on();
      const std::lock_guard lock(mutex);
      EXPECT_EQ(t.images, one.images);
      ASSERT_EQ(weights.size(), expected.size());
      for (size_t i = 0; i < weights.size(); ++i)
        ASSERT_NEAR(weights[i], expected[i], 1e-8) << world << ' ' << i;
    });
  }
}

// Row i of a rank's draws is row i * world + rank of one process's draws.
TEST(Steps, DrawRandomNumbersByGlobalSample) {
  const auto draws = [] {
    Gan net;
    data::DataLoader loader{Points(), {.global_batch_size = 12}};
    training::Training training("points", {.iterations = 2, .seed = 9}, loader, {{"model", net}});
    std::vector<std::vector<float>> all;
    for (training::Step& s : training) {
      const Tensor z = s.randn({3}), more = s.randn({3}), u = s.rand();
      EXPECT_EQ(to_string(u.shape()), to_string(Shape{s.batch().size()}));
      EXPECT_NE(z.to_vector<float>(), more.to_vector<float>());
      for (const Tensor& t : {z, more, u}) all.push_back(t.to_vector<float>());
    }
    EXPECT_NE(all[0], all[3]) << "the second step has others";
    return all;
  };
  const auto one = draws();
  for (const int world : {2, 4}) {
    std::mutex mutex;
    dist::run_ranks(world, [&] {
      const auto mine = draws();
      const int rank = dist::get_rank();
      const std::lock_guard lock(mutex);
      for (size_t k = 0; k < one.size(); ++k) {
        const size_t row = one[k].size() / 12;
        for (size_t i = 0; i < mine[k].size(); ++i)
          EXPECT_EQ(mine[k][i], one[k][(i / row * size_t(world) + size_t(rank)) * row + i % row]);
      }
    });
  }
}

// Tolerances are 5 standard deviations of the means.
TEST(Steps, DrawStandardNormalAndUniformNumbers) {
  Gan net;
  data::DataLoader loader{Points(), {.batch_size = 48}};
  training::Training training("points", {.iterations = 1}, loader, {{"model", net}});
  for (training::Step& s : training) {
    const Tensor z = s.randn({2000}), u = s.rand({2000});
    const double n = 48 * 2000;
    EXPECT_NEAR(mean(z).item<double>(), 0, 5 / std::sqrt(n));
    EXPECT_NEAR(mean(square(z)).item<double>(), 1, 5 * std::sqrt(2 / n));
    EXPECT_NEAR(mean(u).item<double>(), 0.5, 5 * std::sqrt(1 / 12.0 / n));
    EXPECT_THROW(s.every(0), ValueError);
    EXPECT_THROW(s.log("two", zeros({2})), ShapeError);
    EXPECT_EQ(s.log("one", 2.5), 2.5);
  }
}

struct Weight : nn::Module {
  nn::Parameter w{this, "w", full({1}, 1.0, {.dtype = DType::kF64})};
};
double averaged(const gan::Ema& ema) { return ema.weights().at("w").item<double>(); }

// mmgeneration's sequence: a decay of one half, weights that grow from 1 to 2.
TEST(Ema, AveragesByItsDecay) {
  Weight net;
  gan::Ema ema(net, {.decay = 0.5});
  copy_(net.w, full({1}, 2.0));
  ema.update();
  EXPECT_EQ(averaged(ema), 1.5);
  ema.update();
  EXPECT_EQ(averaged(ema), 1.75);
}

TEST(Ema, HalvesTheOldWeightsAfterItsHalfLife) {
  Weight net;
  gan::Ema ema(net, {.half_life_images = 1000}), often(net, {.half_life_images = 1000});
  copy_(net.w, full({1}, 2.0));
  ema.update(1000);
  EXPECT_NEAR(averaged(ema), 1.5, 1e-15);
  for (int64_t images = 100; images <= 1000; images += 100) often.update(images);
  EXPECT_NEAR(averaged(often), 1.5, 1e-12) << "however often it is updated";
  EXPECT_THROW(ema.update(999), ValueError);
}

TEST(Ema, RampsItsHalfLifeUp) {
  Weight net;
  gan::Ema ema(net, {.half_life_images = 10'000, .ramp_up = 0.05});
  EXPECT_DOUBLE_EQ(ema.decay(968, 1000), std::exp2(-32.0 / 50));
  EXPECT_DOUBLE_EQ(ema.decay(999'968, 1'000'000), std::exp2(-32.0 / 10'000));
  EXPECT_EQ(ema.decay(0, 0), 0);
}

// Gammas of the paper: 6.94 for 0.1, 16.97 for 0.05. The average is that of the definition, sum of (i / n)^gamma w_i:
// weights after t of T images contribute (t^(gamma + 1) - (t - 1)^(gamma + 1)) / T^(gamma + 1).
TEST(Ema, OfAPowerFunctionWeightsByIt) {
  Weight net;
  for (const auto& [sigma, gamma] : {std::pair{0.05, 16.97}, std::pair{0.1, 6.94}}) {
    gan::Ema ema(net, {.power_sigma = sigma}), often(net, {.power_sigma = sigma});
    const double power = std::log(ema.decay(1, 2)) / std::log(0.5);  // gamma + 1
    EXPECT_NEAR(power - 1, gamma, 5e-3);
    EXPECT_NEAR(std::sqrt(power / ((power + 1) * (power + 1) * (power + 2))), sigma, 1e-12);
    EXPECT_DOUBLE_EQ(ema.decay(960, 1000), std::pow(0.96, power));
    EXPECT_EQ(ema.decay(0, 64), 0);
    EXPECT_EQ(ema.decay(0, 0), 0);
    double expected = 0;
    for (int64_t step = 1; step <= 20; ++step) {
      const double w = std::sin(double(step));
      copy_(net.w, full({1}, w, {.dtype = DType::kF64}));
      ema.update(64 * step);
      often.update(64 * step - 32), often.update(64 * step);
      expected += w * (std::pow(step / 20.0, power) - std::pow((step - 1) / 20.0, power));
    }
    EXPECT_NEAR(averaged(ema), expected, 1e-12);
    EXPECT_NEAR(averaged(often), expected, 1e-12) << "however often it is updated";
    gan::Ema resumed(net, {.power_sigma = sigma});
    resumed.load_state_dict(ema.state_dict());
    copy_(net.w, full({1}, 3.0));
    ema.update(1344), resumed.update(1344);
    EXPECT_EQ(averaged(resumed), averaged(ema));
  }
}

TEST(Ema, GoesOnFromItsState) {
  Weight net, other;
  gan::Ema ema(net, {.half_life_images = 100}), copy(other, {.half_life_images = 100});
  copy_(net.w, full({1}, 2.0));
  ema.update(70);
  copy.load_state_dict(ema.state_dict());
  copy_(net.w, full({1}, 5.0));
  copy_(other.w, full({1}, 5.0));
  ema.update(120), copy.update(120);
  EXPECT_EQ(averaged(copy), averaged(ema));
  EXPECT_THROW(copy.load_state_dict({}), ValueError);
}

TEST(Ema, OfALayerThatIsAddedBeginsAsACopy) {
  nn::Sequential net;
  net.add<nn::Linear>({.in = 1, .out = 1});
  gan::Ema ema(net, {.decay = 0.9});
  ema.update();
  auto& added = net.add<nn::Linear>({.in = 1, .out = 1});
  ema.update();
  EXPECT_EQ(ema.weights().at("1.weight").item<float>(), added.weight.item<float>());
}

TEST(Ema, TakesOneKindOfDecay) {
  Weight net;
  EXPECT_THROW(gan::Ema(net, {}), ValueError);
  EXPECT_THROW(gan::Ema(net, {.decay = 0.9, .half_life_images = 5}), ValueError);
  EXPECT_THROW(gan::Ema(net, {.decay = 1}), ValueError);
  EXPECT_THROW(gan::Ema(net, {.half_life_images = 0}), ValueError);
  EXPECT_THROW(gan::Ema(net, {.decay = 0.9, .power_sigma = 0.05}), ValueError);
  EXPECT_THROW(gan::Ema(net, {.power_sigma = 0.3}), ValueError);
  EXPECT_THROW(gan::Ema(net, {.power_sigma = 0}), ValueError);
  EXPECT_THROW(gan::Ema(net, {.half_life_images = 1, .ramp_up = -1}), ValueError);
}

}  // namespace
}  // namespace gradus
