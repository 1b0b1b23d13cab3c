// A DCGAN that defines train_step(batch, optimizers) and is trained through SeparateDistributedDataParallel:
// two ranks that accumulate gradients end in the state of one process, and a state between two steps cannot
// be saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/data/dataset.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/models/models.h"
#include "gradus/optim/optimizer_dict.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/tests/distributed/data_parallel/gan_states.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/train/gan/gan.h"
#include "gradus/train/training_state.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kBatch = 8;  // of all ranks
constexpr int64_t kLatent = 6;
constexpr int kSteps = 6;
// Sums over the batch in another order round by about 1e-16 of a gradient. Adam's eps of 1e-3 keeps a step's
// error below lr / eps times that, and the steps amplify it some hundred times.
constexpr double kTolerance = 1e-10;

struct Log {
  Tensor loss_d, loss_g;
};

// A batch's target has the latents of its samples: those of the discriminator's step, then those of the
// generator's, so that any number of ranks trains on the same latents.
struct Gan : nn::Module {
  models::DCGANGenerator gen{this, "gen", {.size = 16, .channels = 1, .width = 2, .latent = kLatent}};
  models::DCGANDiscriminator disc{this, "disc", {.size = 16, .channels = 1, .width = 2}};

  Log train_step(const data::Batch& batch, optim::OptimizerDict& optim) {
    Log log;
    {
      auto recording = optim["disc"].record();
      log.loss_d = loss_d(batch);
      optim["disc"].update_params(log.loss_d);
    }
    {
      auto recording = optim["gen"].record();
      log.loss_g = loss_g(batch);
      optim["gen"].update_params(log.loss_g);
    }
    return log;
  }

  Tensor loss_d(const data::Batch& batch) {
    const Tensor fake = gen(narrow(batch.target, 1, 0, kLatent));
    const Tensor real_scores = disc(batch.input), fake_scores = disc(fake);
    return gan::vanilla_d(real_scores, fake_scores);
  }
  Tensor loss_g(const data::Batch& batch) {
    return gan::vanilla_g(disc(gen(narrow(batch.target, 1, kLatent, kLatent))));
  }
};

data::Batch batch_of(int number, int part = 0, int parts = 1, bool alone = false) {
  const auto of_rank = [&](const std::string& name, const Shape& sample, double scale) {
    return samples(name + std::to_string(number), kBatch, sample, scale, alone ? 0 : get_rank(),
                   alone ? 1 : get_world_size(), part, parts);
  };
  return {.input = of_rank("real", {1, 16, 16}, 1), .target = of_rank("z", {2 * kLatent}, 2)};
}

struct Training {
  // Within a job the networks are wrapped; `alone`: no wrapper, one process.
  explicit Training(bool alone, int64_t accumulative_counts = 1) {
    set_weights(net, alone ? 0 : get_rank());
    optim::OptimizerWrapperOptions options = {.accumulative_counts = accumulative_counts};
    if (alone) {
      gm_d.attach(net.disc.parameters());
      gm_g.attach(net.gen.parameters());
    } else {
      convert_sync_batchnorm(net);
      ddp = std::make_unique<SeparateDistributedDataParallel<Gan>>(net);
      ddp->attach(gm_d, net.disc);
      ddp->attach(gm_g, net.gen);
      options.no_sync = [this] { return ddp->no_sync(); };
    }
    const optim::AdamOptions adam = {.lr = 1e-3, .betas = {0.5, 0.99}, .eps = 1e-3};
    opt_d.emplace(net.disc.parameters(), adam);
    opt_g.emplace(net.gen.parameters(), adam);
    optim.emplace(std::initializer_list<optim::OptimizerDict::Entry>{{"disc", *opt_d, gm_d, options},
                                                                     {"gen", *opt_g, gm_g, options}});
  }

  Log step(const data::Batch& batch) {
    return ddp ? ddp->train_step(batch, *optim) : net.train_step(batch, *optim);
  }

  // All of the state: parameters and buffers, optimizers.
  State state() const {
    State all;
    add(all, "", net.state_dict());
    add(all, "", optim->state_dict());
    return all;
  }

  Gan net;
  GradManager gm_d, gm_g;
  std::unique_ptr<SeparateDistributedDataParallel<Gan>> ddp;
  std::optional<optim::Adam> opt_d, opt_g;
  std::optional<optim::OptimizerDict> optim;
};

constexpr int kRanks = 2;

// With synchronized batch norm, two ranks and one process accumulate the same batches.
TEST(GanTrainStep, AccumulatesAndCommunicatesOncePerStep) {
  Training one(true, 2);
  const State before = one.state();
  for (int i = 0; i < kSteps; ++i) one.step(batch_of(i / 2, i % 2, 2, true));
  const State expected = one.state();
  for (const auto& [name, t] : one.net.named_parameters())
    EXPECT_NE(before.at(name), expected.at(name)) << name << " is trained";
  run_ranks(kRanks, [&] {
    Training ranks(false, 2);
    for (int i = 0; i < kSteps; ++i) ranks.step(batch_of(i / 2, i % 2, 2));
    EXPECT_EQ(difference(ranks.state(), expected, kTolerance), "") << "rank " << get_rank();
    EXPECT_EQ(ranks.ddp->stats(ranks.net.disc).backwards, kSteps / 2);
    EXPECT_EQ(ranks.ddp->stats(ranks.net.gen).backwards, kSteps / 2);
  });
}

TEST(GanTrainStep, IsNotSavedBetweenItsBatches) {
  const std::string file = testing::TempDir() + "gan_train_step.ckpt";
  for (const std::string& error : errors_of(kRanks, [&] {
         Training t(false, 2);
         t.step(batch_of(0, 0, 2));
         EXPECT_THROW(t.optim->load_state_dict({}), StateError);
         TrainingState({{"net", t.net}, {"optimizers", *t.optim}}).save(file);
       }))
    EXPECT_THAT(error, AllOf(HasSubstr("'disc'"), HasSubstr("of 1 batch"), HasSubstr("between two steps")));
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace gradus::dist
