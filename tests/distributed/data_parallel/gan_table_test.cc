// A small GAN under every kind of data parallelism: whole-model and per-module, with the options and ways of
// communication that gradients can take. Its networks grow, skip layers, and take different paths on
// different ranks. All trainings must give what one process computes on the joined batch on the CPU. Linked
// with the GPU emulator, each rank trains on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/nn/layers/conv.h"
#include "gradus/nn/layers/linear.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

constexpr int kSteps = 5;
// Weights are at most about 1 and computed from some hundred products: rounding errors are far below 1e-12.
constexpr double kTolerance = 1e-12;

// ---- the networks ----

// The layers that a rank's networks use in a step.
struct Path {
  bool skip_block = false;  // a layer is left out
  bool mix = false;         // a second style takes part
};

// A residual layer; the networks start with one and grow by one.
struct SmallBlock : nn::Layer {
  using Layer::Layer;
  nn::Conv2d conv{this, "conv", {.in = 2, .out = 2, .kernel = 3, .padding = 1}};
  Tensor forward(const Tensor& x) override { return x + leaky_relu(conv(x), 0.2); }
};

struct SmallGenerator : nn::Module {
  using Module::Module;
  nn::Linear style{this, "style", {.in = 3, .out = 4}};
  nn::Linear second_style{this, "second_style", {.in = 3, .out = 4}};
  nn::Linear base{this, "base", {.in = 4, .out = 18}};
  SmallBlock block{this, "block"};
  nn::Conv2d to_image{this, "to_image", {.in = 2, .out = 1, .kernel = 1}};
  std::unique_ptr<SmallBlock> grown;

  Tensor operator()(const Tensor& z, const Path& path) {  // [N,3] -> [N,1,3,3]
    Tensor w = tanh(style(z));
    if (path.mix) w = w + 0.5 * tanh(second_style(z));
    Tensor h = reshape(base(w), {-1, 2, 3, 3});
    if (!path.skip_block) h = block(h);
    if (grown) h = lerp(h, (*grown)(h), 0.5);
    return tanh(to_image(h));
  }
};

struct SmallDiscriminator : nn::Module {
  using Module::Module;
  nn::Conv2d from_image{this, "from_image", {.in = 1, .out = 2, .kernel = 1}};
  SmallBlock block{this, "block"};
  nn::Linear score{this, "score", {.in = 18, .out = 1}};
  nn::Buffer seen{this, "seen", zeros({1})};  // sum of |x| over this rank's inputs, unless broadcast
  std::unique_ptr<SmallBlock> grown;
  double seen_here = 0;  // the same, never broadcast

  Tensor operator()(const Tensor& x, const Path& path) {  // [N,1,3,3] -> [N,1]
    count(x);
    Tensor h = from_image(x);
    if (grown) h = lerp(h, (*grown)(h), 0.5);
    if (!path.skip_block) h = block(h);
    return score(flatten(h, 1));
  }

 private:
  void count(const Tensor& x) {
    const auto off = no_record();
    const Tensor amount = reshape(sum(abs(x)), {1});
    raw::add_(seen, amount);
    seen_here += amount.item<double>();
  }
};

struct SmallGan : nn::Module {
  SmallGenerator gen{this, "gen"};
  SmallDiscriminator disc{this, "disc"};
  explicit SmallGan(Device device) { to(DType::kF64).to(device); }

  void grow() {
    gen.grown = std::make_unique<SmallBlock>(&gen, "grown");
    disc.grown = std::make_unique<SmallBlock>(&disc, "grown");
    to(DType::kF64);
  }
};

// ---- the training ----

// The rank's device.
Device rank_device() {
  static const int gpus = cuda_device_count();
  return gpus > 0 ? Device{DeviceType::kCUDA, int16_t(get_rank() % gpus)} : kCPU;
}

// A rank's part of a step's batch.
struct GanBatch {
  Tensor real, z;
  Path path;
};
// Step 0: all layers. Step 1: the first rank mixes styles. Step 2: with layers that were not there before,
// all ranks mix. Step 3: the last rank skips a layer. Step 4: all ranks skip it.
GanBatch batch_of(int world, int rank, int step, Device device = kCPU) {
  const uint64_t seed = 1000 * (step + 1) + rank;
  return {raw::to(random_tensor({2, 1, 3, 3}, DType::kF64, seed), device),
          raw::to(random_tensor({2, 3}, DType::kF64, seed + 500), device),
          {.skip_block = step == 4 || (step == 3 && rank == world - 1),
           .mix = step == 2 || (step == 1 && rank == 0)}};
}

// The least-squares GAN loss with a gradient penalty (as in WGAN-GP).
Tensor discriminator_loss(SmallGan& gan, const GanBatch& b, bool detach_fake) {
  Tensor fake = gan.gen(b.z, b.path);
  if (detach_fake) fake = detach(fake);
  const Tensor loss = mean(square(gan.disc(fake, b.path))) + mean(square(gan.disc(b.real, b.path) - 1));
  const Tensor gx =
      autograd::grad([&](const Tensor& x) { return sum(gan.disc(x, b.path)); }, lerp(fake, b.real, 0.3));
  return loss + mean(square(norm(gx, {1, 2, 3}) - 1));
}
Tensor generator_loss(SmallGan& gan, const GanBatch& b) {
  return mean(square(gan.disc(gan.gen(b.z, b.path), b.path) - 1));
}

// The networks with their optimizers.
struct GanTraining {
  explicit GanTraining(Device device) : gan(device) {}
  SmallGan gan;
  optim::SGDOptions options{.lr = 0.05, .momentum = 0.9};
  optim::SGD opt_d{gan.disc.parameters(), options}, opt_g{gan.gen.parameters(), options};

  void grow() {
    gan.grow();
    opt_d.add_param_group(gan.disc.grown->parameters(), options);
    opt_g.add_param_group(gan.gen.grown->parameters(), options);
  }
  void clear_grad() {
    opt_d.clear_grad();
    opt_g.clear_grad();
  }
  void end_step(optim::SGD& opt) {
    opt.step();
    clear_grad();
  }
  std::vector<double> weights() const {
    std::vector<double> all;
    for (const Tensor& p : gan.parameters())
      for (const double v : p.to_vector<double>()) all.push_back(v);
    return all;
  }
};

// The weights after each step of the discriminator and of the generator, trained by one process on the
// batches of `world` ranks together.
std::vector<std::vector<double>> train_joined(int world) {
  manual_seed(1);
  GanTraining t(kCPU);
  GradManager gm_d, gm_g;
  gm_d.attach(t.gan.disc.parameters());
  gm_g.attach(t.gan.gen.parameters());
  std::vector<std::vector<double>> after;
  for (int step = 0; step < kSteps; ++step) {
    if (step == 2) {
      t.grow();
      gm_d.attach(t.gan.disc.grown->parameters());
      gm_g.attach(t.gan.gen.grown->parameters());
    }
    const auto train = [&](GradManager& gm, optim::SGD& opt, auto loss) {
      auto recording = gm.record();
      Tensor total = loss(batch_of(world, 0, step));
      for (int r = 1; r < world; ++r) total = total + loss(batch_of(world, r, step));
      gm.backward(total / double(world));
      t.end_step(opt);
      after.push_back(t.weights());
    };
    train(gm_d, t.opt_d, [&](const GanBatch& b) { return discriminator_loss(t.gan, b, false); });
    train(gm_g, t.opt_g, [&](const GanBatch& b) { return generator_loss(t.gan, b); });
  }
  return after;
}

enum class Wrapper {
  kWhole,             // one model, one manager; each backward gives gradients to whatever its loss reaches
  kWholeNarrowed,     // the same, recordings narrowed to one network
  kWholeTwoManagers,  // one model, a manager for each network
  kSeparate,          // a reducer for each network
};

constexpr const char* kWrapperNames[] = {"Whole", "WholeNarrowed", "WholeTwoManagers", "Separate"};

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::isfinite(a[i]) ? std::max(largest, std::abs(a[i] - b[i])) : INFINITY;
  return largest;
}

// The GAN's recordings and backwards under one of the wrappers.
class Steps {
 public:
  Steps(Wrapper wrapper, SmallGan& gan, const DistributedDataParallelOptions& options) : wrapper_(wrapper) {
    if (wrapper == Wrapper::kSeparate) {
      separate_ = std::make_unique<SeparateDistributedDataParallel<SmallGan>>(gan, options);
      separate_->attach(gm_d_, gan.disc);
      separate_->attach(gm_g_, gan.gen);
      return;
    }
    whole_ = std::make_unique<DistributedDataParallel<SmallGan>>(gan, options);
    if (wrapper == Wrapper::kWholeTwoManagers) {
      whole_->attach(gm_d_, gan.disc);
      whole_->attach(gm_g_, gan.gen);
    } else {
      whole_->attach(gm_d_);
    }
  }

  // Whether the discriminator's step must detach the generated images, as its recording follows both
  // networks.
  bool detach_fake() const { return wrapper_ == Wrapper::kWhole; }

  template <class Loss> void backward_of_discriminator(SmallGan& gan, Loss loss) {
    backward(gm_d_, gan.disc, loss);
  }
  template <class Loss> void backward_of_generator(SmallGan& gan, Loss loss) {
    backward(wrapper_ == Wrapper::kWhole || wrapper_ == Wrapper::kWholeNarrowed ? gm_d_ : gm_g_, gan.gen,
             loss);
  }
  NoSync no_sync() { return whole_ ? whole_->no_sync() : separate_->no_sync(); }
  const ReducerStats& stats(const nn::Module& part) const {
    return whole_ ? whole_->stats() : separate_->stats(part);
  }

 private:
  template <class Loss> void backward(GradManager& gm, const nn::Module& part, Loss loss) {
    auto recording =
        wrapper_ == Wrapper::kWholeNarrowed ? gm.record({.only = part.parameters()}) : gm.record();
    gm.backward(loss());
  }

  const Wrapper wrapper_;
  std::unique_ptr<DistributedDataParallel<SmallGan>> whole_;
  std::unique_ptr<SeparateDistributedDataParallel<SmallGan>> separate_;
  GradManager gm_d_, gm_g_;
};

// ---- the table ----

int64_t bytes(const nn::Module& m) { return 8 * m.num_parameters(); }

// Options of data parallelism and of the ranks.
struct Way {
  const char* name;
  DistributedDataParallelOptions options = {};
  RunRanksOptions ranks = {};
  int batches = 1;  // number of backwards accumulated in a step
};
const Way kWays[] = {{"ByDefault"},
                     {"ByMessages", {}, {.messages_only = true}},
                     {"InTinyBuckets", {.bucket_cap_mb = 1e-6}},
                     {"AsBucketViews", {.gradient_as_bucket_view = true}},
                     {"AfterBackward", {.bucket_cap_mb = 1e-4, .overlap = false}},
                     {"WithoutBuffers", {.broadcast_buffers = false}},
                     {"WithBuffers", {.broadcast_buffers = true, .find_unused_parameters = true}},
                     {"Accumulating", {}, {}, 2}};

class GanTable : public testing::TestWithParam<std::tuple<Wrapper, int, Way>> {};

TEST_P(GanTable, RanksComeToWhatTheJoinedBatchGivesAndSendWhatTheyTouch) {
  const auto& [wrapper, world, way] = GetParam();
  const int parts = world * way.batches;
  const auto expected = train_joined(parts);
  const auto train = [&, wrapper = wrapper, way = way] {
    const int rank = get_rank();
    manual_seed(1 + rank);  // ranks start and grow with different weights; rank 0's are broadcast
    GanTraining t(rank_device());
    Steps steps(wrapper, t.gan, way.options);
    for (int step = 0; step < kSteps; ++step) {
      if (step == 2) t.grow();
      const auto accumulate = [&](auto backward) {
        for (int k = 0; k < way.batches; ++k) {
          std::optional<NoSync> kept_back;
          if (k + 1 < way.batches) kept_back.emplace(steps.no_sync());
          backward(batch_of(parts, way.batches * rank + k, step, rank_device()));
        }
      };
      const auto expect_equal = [&](size_t at) {
        EXPECT_LE(difference(t.weights(), expected[at]), kTolerance) << "rank " << rank << " step " << step;
      };
      accumulate([&](const GanBatch& b) {
        steps.backward_of_discriminator(
            t.gan, [&] { return discriminator_loss(t.gan, b, steps.detach_fake()) / way.batches; });
      });
      // A layer that all ranks skip is not sent; one that some of them skip is.
      const bool skip = step == 4, mix = step == 1 || step == 2;
      const int64_t of_d = bytes(t.gan.disc) - (skip ? bytes(t.gan.disc.block) : 0);
      const int64_t of_g =
          bytes(t.gan.gen) - (mix ? 0 : bytes(t.gan.gen.second_style)) - (skip ? bytes(t.gan.gen.block) : 0);
      EXPECT_EQ(steps.stats(t.gan.disc).bytes, of_d) << "step " << step;
      const std::string first = broadcast_object(std::to_string(t.gan.disc.seen_here));
      const bool from_first = way.options.broadcast_buffers.value_or(wrapper != Wrapper::kSeparate);
      EXPECT_NEAR(t.gan.disc.seen.item<double>(), from_first ? std::stod(first) : t.gan.disc.seen_here, 1e-5)
          << "step " << step;
      t.end_step(t.opt_d);
      expect_equal(2 * step);

      accumulate([&](const GanBatch& b) {
        steps.backward_of_generator(t.gan, [&] { return generator_loss(t.gan, b) / way.batches; });
      });
      // Without narrowing the generator's loss reaches the discriminator too.
      EXPECT_EQ(steps.stats(t.gan.gen).bytes, of_g + (wrapper == Wrapper::kWhole ? of_d : 0))
          << "step " << step;
      t.end_step(t.opt_g);
      expect_equal(2 * step + 1);
    }
    EXPECT_EQ(steps.stats(t.gan.gen).backwards, wrapper == Wrapper::kSeparate ? kSteps : 2 * kSteps);
  };
  run_ranks(world, train, way.ranks);
}

INSTANTIATE_TEST_SUITE_P(All, GanTable,
                         testing::Combine(testing::Values(Wrapper::kWhole, Wrapper::kWholeNarrowed,
                                                          Wrapper::kWholeTwoManagers, Wrapper::kSeparate),
                                          testing::Values(3), testing::ValuesIn(kWays)),
                         [](const auto& info) {
                           return concat(kWrapperNames[int(std::get<0>(info.param))], '_',
                                         std::get<1>(info.param), "Ranks_", std::get<2>(info.param).name);
                         });

}  // namespace
}  // namespace gradus::dist
