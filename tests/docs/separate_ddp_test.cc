// The page of mmengine about MMSeparateDistributedDataParallel: a model with train_step, val_step and test_step, and a
// wrapper that gives each of its networks data parallelism of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using Log = std::map<std::string, double>;

struct ToyGan : nn::Module {
  nn::Linear generator{this, "generator", {.in = 2, .out = 3}};
  nn::Linear discriminator{this, "discriminator", {.in = 3, .out = 1}};
  nn::Identity preprocessor{this, "preprocessor", {}};  // without parameters

  // x has a latent vector and a sample in each row: [N, 2 + 3].
  Log train_step(const Tensor& x, optim::OptimizerDict& optim_wrapper) {
    const Tensor z = preprocessor(narrow(x, 1, 0, 2)), real = narrow(x, 1, 2, 3);
    Log log;
    {
      auto recording = optim_wrapper["discriminator"].record();
      const Tensor loss = mean(square(discriminator(real) - 1)) + mean(square(discriminator(generator(z))));
      optim_wrapper["discriminator"].update_params(loss);
      log["loss_disc"] = loss.item<double>();
    }
    {
      auto recording = optim_wrapper["generator"].record();
      const Tensor loss = mean(square(discriminator(generator(z)) - 1));
      optim_wrapper["generator"].update_params(loss);
      log["loss_gen"] = loss.item<double>();
    }
    return log;
  }
  Tensor val_step(const Tensor& x) { return generator(narrow(x, 1, 0, 2)); }
  Tensor test_step(const Tensor& x) { return val_step(x); }
};

Tensor samples() {
  manual_seed(7);
  return randn({8, 5}, {.dtype = DType::kF64});
}

// Trains `net` by its wrapper, or by itself, on rows rank, rank + world, ... of the samples.
template <class Model>
void train(Model& model, ToyGan& net, GradManager& gm_d, GradManager& gm_g, int rank, int world) {
  optim::SGD opt_d(net.discriminator.parameters(), {.lr = 0.1, .momentum = 0.9});
  optim::SGD opt_g(net.generator.parameters(), {.lr = 0.1, .momentum = 0.9});
  optim::OptimizerDict optim_wrapper{{"discriminator", opt_d, gm_d}, {"generator", opt_g, gm_g}};
  const Tensor x = slice(samples(), 0, rank, 8, world);
  for (int step = 0; step < 5; ++step) {
    const Log log = model.train_step(x, optim_wrapper);
    EXPECT_EQ(log.size(), 2u);
  }
}

TEST(SeparateDdpPage, TrainsEachNetworkAsOneProcessDoes) {
  manual_seed(1);
  ToyGan one;
  one.to(DType::kF64);
  GradManager gm_d, gm_g;
  gm_d.attach(one.discriminator.parameters());
  gm_g.attach(one.generator.parameters());
  train(one, one, gm_d, gm_g, 0, 1);
  const Tensor expected = one.val_step(samples());

  for (const bool find_unused_parameters : {false, true})
    dist::run_ranks(2, [&] {
      manual_seed(1 + uint64_t(dist::get_rank()));  // the wrapper broadcasts rank 0's weights
      ToyGan net;
      net.to(DType::kF64);
      dist::SeparateDistributedDataParallel ddp(
          net, {.broadcast_buffers = false, .find_unused_parameters = find_unused_parameters});
      GradManager d, g;
      ddp.attach(d, ddp->discriminator);
      ddp.attach(g, ddp->generator);
      EXPECT_TRUE(&ddp.train(true) == &ddp && net.is_training());  // train returns the wrapper
      train(ddp, net, d, g, dist::get_rank(), dist::get_world_size());
      ddp.train(false);
      EXPECT_FALSE(net.is_training());
      for (const Tensor& y : {ddp.val_step(samples()), ddp.test_step(samples())})
        EXPECT_LE(max(abs(y - expected)).item<double>(), 1e-12);
      // Each network has its own reducer; the names are the model's, without a prefix.
      EXPECT_NE(ddp.callback(net.generator), ddp.callback(net.discriminator));
      EXPECT_TRUE(ddp.state_dict().contains("generator.weight"));
      dist::check_synchronized(net);
    });
}

}  // namespace
}  // namespace gradus
