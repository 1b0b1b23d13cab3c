// The example of docs/guide/gans.md whose training step is a method of the model: it compiles, and both
// networks train on two ranks (threads).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "gradus/gradus.h"

namespace gradus {
namespace {

struct DcGan : nn::Module {
  models::DCGANGenerator gen{this, "gen", {.size = 16, .channels = 1, .width = 8}};
  models::DCGANDiscriminator disc{this, "disc", {.size = 16, .channels = 1, .width = 8}};

  struct Log {
    Tensor loss_d, loss_g;
  };

  Log train_step(const data::Batch& batch, optim::OptimizerDict& optim) {
    Log log;
    {
      auto recording = optim["disc"].record();  // the generator makes images without a gradient
      const Tensor fake = gen(randn({batch.size(), 100}));
      const Tensor real_scores = disc(batch.input), fake_scores = disc(fake);
      log.loss_d = gan::vanilla_d(real_scores, fake_scores);
      optim["disc"].update_params(log.loss_d);  // backward, step, clear_grad
    }
    {
      auto recording = optim["gen"].record();
      log.loss_g = gan::vanilla_g(disc(gen(randn({batch.size(), 100}))));
      optim["gen"].update_params(log.loss_g);
    }
    return log;
  }
};

struct Images : data::Dataset {
  int64_t size() const override { return 32; }
  data::Sample get(int64_t) const override { return {.input = rand({1, 16, 16}) * 2 - 1}; }
};

TEST(GansPage, AStepOfTheModelsOwn) {
  testing::internal::CaptureStdout();
  dist::run_ranks(2, [] {
    data::DataLoader loader(Images(), {.batch_size = 4});
    manual_seed(1 + uint64_t(dist::get_rank()));
    DcGan net;
    dist::convert_sync_batchnorm(net);
    dist::SeparateDistributedDataParallel ddp(net);
    GradManager gm_d, gm_g;
    ddp.attach(gm_d, net.disc);
    ddp.attach(gm_g, net.gen);
    optim::Adam opt_d(net.disc.parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}});
    optim::Adam opt_g(net.gen.parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}});
    const optim::OptimizerWrapperOptions by_two = {.accumulative_counts = 2,
                                                   .no_sync = [&] { return ddp.no_sync(); }};
    optim::OptimizerDict optimizers{{"disc", opt_d, gm_d, by_two}, {"gen", opt_g, gm_g, by_two}};
    for (const data::Batch& batch : loader) {
      const DcGan::Log log = ddp.train_step(batch, optimizers);
      if (dist::get_rank() == 0)
        std::cout << log.loss_d.item<float>() << ' ' << log.loss_g.item<float>() << '\n';
    }
    EXPECT_EQ(ddp.stats(net.disc).backwards, 2) << "four batches a rank, two of them a step";
    EXPECT_EQ(ddp.stats(net.gen).backwards, 2);
    EXPECT_EQ(optimizers["gen"].accumulated(), 0);
    dist::check_synchronized(net);
  });
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 4) << printed;
}

}  // namespace
}  // namespace gradus
