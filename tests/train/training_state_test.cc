// TrainingState, which saves and loads all parts of a training: a GAN continues bit for bit on as many ranks,
// and from the same values on other numbers of ranks (threads). Previous files, errors, names;
// io::Checkpoint.
#include "gradus/train/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <set>

#include "gradus/gradus.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/io/testing.h"

namespace gradus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Maker : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 4, .out = 8}}, fc2{this, "fc2", {.in = 8, .out = 2}};
  nn::BatchNorm1d norm{this, "norm", {.features = 8}};
  Tensor forward(const Tensor& z) override { return fc2(relu(norm(fc1(z)))); }
};
struct Critic : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 2, .out = 8}}, fc2{this, "fc2", {.in = 8, .out = 1}};
  Tensor forward(const Tensor& x) override { return fc2(leaky_relu(dropout(fc1(x), 0.25), 0.2)); }
};

// Points in the plane.
data::TensorDataset points() {
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(float(i));
  return data::TensorDataset(tensor(values, {32, 2}), arange(32));
}

// A GAN and all that belongs to its training.
struct Gan {
  data::TensorDataset set = points();
  Maker gen;
  Critic critic;
  optim::Adam opt_g{gen.parameters(), {.lr = 0.01}};
  optim::SGD opt_c{critic.parameters(), {.lr = 0.05, .momentum = 0.9}};
  optim::StepLR schedule_g{opt_g, {.step_size = 1, .gamma = 0.9}};
  optim::StepLR schedule_c{opt_c, {.step_size = 1, .gamma = 0.8}};
  optim::AveragedModel average{gen, {.decay = 0.9}};
  optim::GradScaler scaler{{.init_scale = 8, .growth_interval = 2}};
  data::DataLoader loader{set, {.global_batch_size = 4, .shuffle = true, .seed = 5}};
  RandomGenerator noise;  // of the generator's inputs
  int64_t steps = 0;
  double best = 0;
  Tensor fixed_noise = zeros({3, 4});
  GradManager gm_g, gm_c;
  std::multiset<int64_t> seen;
  TrainingState state{{"gen", gen},
                      {"critic", critic},
                      {"opt_g", opt_g},
                      {"opt_c", opt_c},
                      {"schedule_g", schedule_g},
                      {"schedule_c", schedule_c},
                      {"average", average},
                      {"scaler", scaler},
                      {"loader", loader},
                      {"noise", noise},
                      {"steps", steps},
                      {"best", best},
                      {"fixed_noise", fixed_noise}};

  // Weights are equal on all ranks, generators are not.
  explicit Gan(uint64_t seed) {
    manual_seed(seed);
    gen.apply([](nn::Module& m) {
      for (auto& [name, p] : m.named_parameters()) normal_(p, 0, 0.5);
    });
    dist::convert_sync_batchnorm(gen);
    dist::bcast_list_(gen.parameters());
    dist::bcast_list_(critic.parameters());
    gm_g.attach(gen.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
    gm_c.attach(critic.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
    manual_seed(seed + 10 * uint64_t(dist::get_rank() + 1));
    noise.manual_seed(seed + 1000 * uint64_t(dist::get_rank() + 1));
    normal_(fixed_noise);
    dist::broadcast(fixed_noise);
  }

  void step(const data::Batch& b) {
    seen.insert(b.indices.begin(), b.indices.end());
    uniform_(gen.fc1.bias, -0.1, 0.1);  // advances this rank's own generator
    dist::broadcast(gen.fc1.bias);
    const Tensor z = randn({b.size(), 4});
    {
      auto recording = gm_c.record();
      scaler.backward(gm_c, mean(critic(gen(z))) - mean(critic(b.input)));
      scaler.step(opt_c);
      opt_c.clear_grad();
    }
    {
      auto recording = gm_g.record();
      gm_g.backward(-mean(critic(gen(z + double(noise.next().stream % 3)))));
      opt_g.step().clear_grad();
    }
    average.update_parameters();
    best = std::sin(double(steps));  // an arbitrary number, equal on all ranks
    ++steps;
  }
  void end_epoch() { schedule_g.step(), schedule_c.step(); }

  std::vector<Tensor> tensors() const {
    std::vector<Tensor> all = gen.parameters();
    for (const auto& list : {gen.buffers(), critic.parameters(), std::vector<Tensor>{fixed_noise}})
      all.insert(all.end(), list.begin(), list.end());
    for (const auto& [name, x] : average.weights()) all.push_back(x);
    for (const auto* opt :
         {static_cast<const optim::Optimizer*>(&opt_g), static_cast<const optim::Optimizer*>(&opt_c)}) {
      for (const auto& [name, x] : opt->state_dict().tensors) all.push_back(x);
      all.push_back(scalar(opt->lr(), {.dtype = DType::kF64}));
    }
    return all;
  }
  std::vector<std::vector<double>> values() const {
    std::vector<std::vector<double>> all;
    for (const Tensor& x : tensors()) all.push_back(x.to_vector<double>());
    all.push_back({double(steps), best, scaler.scale(), double(schedule_g.last_epoch()),
                   double(schedule_c.last_epoch())});
    return all;
  }
};

// Trains `steps` steps more, across epochs.
void train(Gan& gan, int64_t steps) {
  const int64_t end = gan.steps + steps;
  while (gan.steps < end) {
    for (const data::Batch& b : gan.loader) {
      gan.step(b);
      if (gan.steps == end) return;
    }
    gan.end_epoch();
  }
}

TEST(TrainingState, AGanGoesOnBitForBitOnAsManyRanks) {
  const Scratch dir;
  const auto path = dir / "runs" / "gan.ckpt";  // save() creates the folder
  dist::run_ranks(2, [&] {
    Gan gan(1);
    int64_t saved = 0;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const data::Batch& b : gan.loader) {
        gan.step(b);
        if (gan.steps == 11) gan.state.save(path), saved = gan.steps;
      }
      gan.end_epoch();
    }
    EXPECT_EQ(saved, 11);
    EXPECT_EQ(gan.steps, 16);

    const auto drawn = Context::current().generator->state();

    Gan other(2);
    EXPECT_NE(other.values(), gan.values());
    const io::LoadedCheckpoint loaded = other.state.load(path);
    EXPECT_EQ(loaded.warning, "");
    EXPECT_EQ(other.steps, 11);
    EXPECT_EQ(other.loader.epoch(), 1u);
    train(other, 5);
    other.end_epoch();
    EXPECT_EQ(other.values(), gan.values());
    EXPECT_EQ(other.noise.state(), gan.noise.state());
    EXPECT_EQ(Context::current().generator->state(), drawn);
    dist::check_synchronized(other.gen);
  });
}

TEST(TrainingState, AnyNumberOfRanksReadsIt) {
  const Scratch dir;
  const auto path = dir / "gan.ckpt";
  std::vector<std::vector<double>> saved;
  std::multiset<int64_t> first;
  std::vector<std::array<uint64_t, 2>> noise(2);
  std::mutex mutex;
  dist::run_ranks(2, [&] {
    Gan gan(1);
    train(gan, 3);
    gan.state.save(path);
    const std::lock_guard lock(mutex);
    first.insert(gan.seen.begin(), gan.seen.end());
    noise[size_t(dist::get_rank())] = gan.noise.state();
    if (dist::get_rank() == 0) saved = gan.values();
  });
  EXPECT_NE(noise[0], noise[1]);
  for (const int world : {1, 3, 4}) {
    std::multiset<int64_t> seen = first;
    std::set<std::array<uint64_t, 2>> own;
    dist::run_ranks(world, [&] {
      Gan gan(2);
      gan.state.load(path);
      const auto values = gan.values();
      const auto generator = Context::current().generator->state();
      {
        const std::lock_guard lock(mutex);
        EXPECT_EQ(values, saved);
        own.insert(gan.noise.state());
        own.insert(generator);
        if (dist::get_rank() < 2) {
          EXPECT_EQ(gan.noise.state(), noise[size_t(dist::get_rank())]);
        }
      }
      train(gan, 5);
      const std::lock_guard lock(mutex);
      seen.insert(gan.seen.begin(), gan.seen.end());
    });
    EXPECT_EQ(own.size(), 2u * unsigned(world)) << world << " ranks";  // all generators differ
    EXPECT_EQ(seen.size(), 32u) << world << " ranks";                  // 3 + 5 steps of 4: each sample once
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 32u);
  }
}

TEST(TrainingState, RanksWithOneGeneratorKeepOne) {
  const Scratch dir;
  const auto path = dir / "run.ckpt";
  dist::run_ranks(2, [&] {
    manual_seed(4);
    TrainingState({}).save(path);
  });
  dist::run_ranks(3, [&] {
    manual_seed(9);
    TrainingState({}).load(path);
    EXPECT_EQ(Context::current().generator->state(), (std::array<uint64_t, 2>{4, 0}));
  });
}

TEST(TrainingState, ResumesWhereThereIsSomething) {
  const Scratch dir;
  const auto path = dir / "run.ckpt";
  nn::Linear net({.in = 2, .out = 2});
  int64_t steps = 1;
  std::string name = "first";
  Tensor none;
  TrainingState state{{"net", net}, {"steps", steps}, {"name", name}};
  EXPECT_FALSE(state.resume(path));
  state.save(path);
  steps = 2, name = "second";
  state.save(path);
  steps = 3;
  EXPECT_TRUE(state.resume(path));
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(name, "second");

  io::spit(path, "damaged");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(state.resume(path));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("run.ckpt"), HasSubstr("continuing from")));
  EXPECT_EQ(steps, 1);
  std::filesystem::remove(path.string() + ".previous");
  EXPECT_THROW(state.resume(path), FileError);  // instead of starting from the beginning
  EXPECT_EQ(steps, 1);
}

TEST(TrainingState, ErrorsNameTheFileAndThePart) {
  const Scratch dir;
  const auto path = dir / "run.ckpt";
  nn::Linear net({.in = 2, .out = 2}), wide({.in = 3, .out = 2});
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  TrainingState({{"net", net}}).save(path);
  EXPECT_ERROR(FileError, TrainingState({{"net", net}, {"opt", opt}}).load(path), "run.ckpt", "'opt'",
               "'net.weight'");
  EXPECT_ERROR(ValueError, TrainingState({{"net", wide}}).load(path), "run.ckpt", "'net'", "[2,3]");
  EXPECT_THROW(TrainingState({{"net", net}}).load(dir / "none.ckpt"), FileError);
  // The same on all ranks.
  for (const std::string& e : dist::errors_of(3, [&] {
         nn::Linear mine({.in = 3, .out = 2});
         TrainingState({{"net", mine}}).load(path);
       }))
    EXPECT_THAT(e, AllOf(HasSubstr("run.ckpt"), HasSubstr("[2,3]")));
}

// A rank that does not call save() enters another collective, or exits.
TEST(TrainingState, SaveOnOneRankSaysThatAllMustCallIt) {
  const Scratch dir;
  int64_t steps = 1;
  const auto save_on_first = [&] {
    if (dist::get_rank() == 0) TrainingState({{"steps", steps}}).save(dir / "run.ckpt");
  };
  const std::vector<std::string> mismatch = dist::errors_of(2, [&] {
    save_on_first();
    dist::all_reduce(zeros({4}));
  });
  for (const std::string& error : mismatch)
    EXPECT_THAT(error, HasSubstr("rank 0 called TrainingState::save()"));
  EXPECT_THAT(mismatch[0], HasSubstr("which all ranks must call"));
  EXPECT_THAT(dist::errors_of(2, save_on_first)[0], HasSubstr("which all ranks must call"));
}

TEST(TrainingState, RefusesAnOptimizerBetweenTheBatchesOfAStep) {
  const Scratch dir;
  nn::Linear net({.in = 2, .out = 1});
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  optim::OptimizerWrapper wrapper(opt, gm, {.accumulative_counts = 2});
  TrainingState state{{"net", net}, {"opt", opt}};
  const auto update = [&] {
    auto recording = wrapper.record();
    wrapper.update_params(sum(net(ones({1, 2}))));
  };
  update();
  EXPECT_ERROR(StateError, state.save(dir / "run.ckpt"), "1 batches");
  EXPECT_FALSE(std::filesystem::exists(dir / "run.ckpt"));
  update();
  state.save(dir / "run.ckpt");
  update();
  EXPECT_THROW(state.load(dir / "run.ckpt"), StateError);
}

TEST(TrainingState, NamesAreUnique) {
  nn::Linear a({.in = 2, .out = 2}), b({.in = 2, .out = 2});
  const auto error = [](std::initializer_list<TrainingState::Part> parts) {
    return error_of<ValueError>([&] { TrainingState state(parts); });
  };
  EXPECT_THAT(error({{"net", a}, {"net", b}}), HasSubstr("two parts are named 'net'"));
  EXPECT_THAT(error({{"net", a}, {"net.head", b}}), HasSubstr("below"));
  EXPECT_THAT(error({{"net.head", a}, {"net", b}}), HasSubstr("below"));
  EXPECT_THAT(error({{"generator", a}}), HasSubstr("always a part"));
  EXPECT_THAT(error({{"", a}}), HasSubstr("part 0 has no name"));
}

// A tensor that get() reads into must have the saved shape and dtype.
TEST(Checkpoint, TensorsKeepTheirShapeAndDType) {
  io::Checkpoint c;
  c.put("noise", ones({2, 3}));
  Tensor other = zeros({3, 2}), halves = zeros({2, 3}, {.dtype = DType::kF16}), none;
  EXPECT_THROW(c.get("noise", other), ShapeError);
  EXPECT_THROW(c.get("noise", halves), DTypeError);
  c.get("noise", none);
  EXPECT_EQ(none.to_vector<float>(), std::vector<float>(6, 1));
}

// A user's class with a State.
struct Counter {
  struct State {
    int64_t count = 0;
    bool on = false;
    static void each(auto& s, auto&& f) { f("count", s.count), f("on", s.on); }
  };
  State now;
  State state() const { return now; }
  void set_state(const State& s) { now = s; }
};

TEST(Checkpoint, TakesWhateverHasAState) {
  Counter counter{{.count = 7, .on = true}}, other;
  io::Checkpoint c;
  c.put("counter", counter);
  EXPECT_EQ(c.names(), (std::vector<std::string>{"counter.count", "counter.on"}));
  c.get("counter", other);
  EXPECT_EQ(other.now.count, 7);
  EXPECT_TRUE(other.now.on);
  EXPECT_ERROR(FileError, c.get("timer", other), "nothing below 'timer'");
}

}  // namespace
}  // namespace gradus
