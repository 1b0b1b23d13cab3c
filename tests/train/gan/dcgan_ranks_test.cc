// A DCGAN in f64, trained on 1, 2 and 4 ranks (threads) with one global batch: generated images differ by at
// most 1e-8, the rounding of sums in another order; two runs on 2 ranks give the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "gradus/gradus.h"

namespace gradus {
namespace {

struct Images : data::Dataset {
  int64_t size() const override { return 60; }
  data::Sample get(int64_t i) const override {
    std::vector<double> pixels(16 * 16);
    for (size_t j = 0; j < pixels.size(); ++j) pixels[j] = std::sin(0.1 * double(j) + double(i * i % 17));
    return {.input = tensor(pixels, {1, 16, 16})};
  }
};

struct Gan : nn::Module {
  models::DCGANGenerator gen{this, "gen", {.size = 16, .channels = 1, .width = 4}};
  models::DCGANDiscriminator disc{this, "disc", {.size = 16, .channels = 1, .width = 4}};
};

// Trains 15 steps with a global batch of 8. Returns images generated from fixed latents.
std::vector<double> images_of_a_training() {
  manual_seed(3);
  Gan net;
  net.to(DType::kF64);
  dist::convert_sync_batchnorm(net);
  data::DataLoader loader(Images(), {.global_batch_size = 8, .shuffle = true, .drop_last = true, .seed = 3});
  dist::SeparateDistributedDataParallel ddp(net);
  GradManager gm_d, gm_g;
  ddp.attach(gm_d, net.disc);
  ddp.attach(gm_g, net.gen);
  // A large eps: gradients of pure rounding, as of biases before a norm, must not become steps of size lr.
  optim::Adam opt_d(net.disc.parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}, .eps = 1e-3});
  optim::Adam opt_g(net.gen.parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}, .eps = 1e-3});
  const training::RunOptions run = {.iterations = 15};
  training::Training training("dcgan", run, loader,
                              {{"model", net}, {"optimizer_disc", opt_d}, {"optimizer_gen", opt_g}});
  for (training::Step& s : training) {
    const auto fake = [&] { return net.gen(to(s.randn({100}), DType::kF64)); };
    {
      auto recording = gm_d.record();
      const Tensor real_scores = net.disc(s.batch().input), fake_scores = net.disc(fake());
      gm_d.backward(gan::vanilla_d(real_scores, fake_scores));
      opt_d.step().clear_grad();
    }
    auto recording = gm_g.record();
    gm_g.backward(gan::vanilla_g(net.disc(fake())));
    opt_g.step().clear_grad();
  }
  net.eval();
  manual_seed(7);
  return net.gen(randn({4, 100}, {.dtype = DType::kF64})).to_vector<double>();
}

// The images of each rank.
std::vector<std::vector<double>> on_ranks(int world) {
  std::vector<std::vector<double>> all(static_cast<size_t>(world));
  dist::run_ranks(world, [&] { all[size_t(dist::get_rank())] = images_of_a_training(); });
  return all;
}

TEST(DCGANOnRanks, MakesTheSameImagesFromTheSameLatents) {
  const std::vector<double> want = on_ranks(1)[0];
  ASSERT_EQ(want.size(), size_t(4 * 16 * 16));
  for (const int world : {2, 4})
    for (const std::vector<double>& got : on_ranks(world)) {
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-8) << world << " ranks, " << i;
    }
}

TEST(DCGANOnRanks, HasTheSameBitsAgain) { EXPECT_EQ(on_ranks(2), on_ranks(2)); }

}  // namespace
}  // namespace gradus
