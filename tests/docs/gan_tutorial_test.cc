// The tutorial of mmgeneration on distributed training of GANs: its table of wrappers, find_unused_parameters, and
// static (DCGAN) and dynamic GANs (PGGAN, whose networks grow). There some cells are errors; here all train.
#include <gtest/gtest.h>

#include "gradus/gradus.h"

namespace gradus {
namespace {

struct Dcgan : nn::Module {
  models::DCGANGenerator gen{this, "gen", {.size = 8, .channels = 1, .width = 2, .latent = 8}};
  models::DCGANDiscriminator disc{this, "disc", {.size = 8, .channels = 1, .width = 2}};

  Tensor images(int) { return gen(randn({4, 8})); }
  Tensor real(int) { return randn({4, 1, 8, 8}); }
  Tensor scores(const Tensor& x, int) { return disc(x); }
};

// Step 0 has images of 4x4 pixels, later steps of 8x8. In step 1 these fade in.
struct Pggan : nn::Module {
  models::PGGANGenerator gen{this, "gen", {.size = 8, .channels = 1, .latent = 8, .channel_base = 16}};
  models::PGGANDiscriminator disc{this, "disc", {.size = 8, .channels = 1, .channel_base = 16}};

  static models::Scale scale(int step) { return {.size = step == 0 ? 4 : 8, .fade = step == 1 ? 0.5 : 1.0}; }
  Tensor images(int step) { return gen(randn({4, 8}), scale(step)); }
  Tensor real(int step) { return randn({4, 1, scale(step).size, scale(step).size}); }
  Tensor scores(const Tensor& x, int step) { return disc(x, scale(step)); }
};

// One step of each network, as in the tutorial's train_step. record_d and record_g open recordings.
template <class Gan, class RecordD, class RecordG>
void train_step(Gan& gan, int step, GradManager& gm_d, GradManager& gm_g, optim::SGD& opt_d,
                optim::SGD& opt_g, RecordD record_d, RecordG record_g) {
  {
    auto recording = record_d();
    const Tensor real = gan.scores(gan.real(step), step), fake = gan.scores(gan.images(step), step);
    gm_d.backward(gan::vanilla_d(real, fake));
    opt_d.step();
    opt_d.clear_grad();
    opt_g.clear_grad();
  }
  {
    auto recording = record_g();
    gm_g.backward(gan::vanilla_g(gan.scores(gan.images(step), step)));
    opt_g.step();
    opt_d.clear_grad();
    opt_g.clear_grad();
  }
}

enum class Wrapper {
  kWhole,     // MMDDP, DDP: one wrapper, one manager, which follows both networks
  kDynamic,   // with the Dynamic Runner: the parameters of each backward are named before it
  kSeparate,  // the DDP Wrapper: a wrapper for each network
};

// Trains on two ranks, which begin with other weights and have other samples. They end with the same weights.
template <class Gan> void train(Wrapper wrapper, bool find_unused_parameters) {
  dist::run_ranks(2, [&] {
    manual_seed(1 + uint64_t(dist::get_rank()));
    Gan gan;
    const dist::DistributedDataParallelOptions options = {.find_unused_parameters = find_unused_parameters};
    optim::SGD opt_d(gan.disc.parameters(), {.lr = 0.1}), opt_g(gan.gen.parameters(), {.lr = 0.1});
    GradManager gm, gm_g;
    std::vector<Tensor> before;
    const auto remember = [&] {
      for (const Tensor& p : gan.parameters()) before.push_back(clone(p));
    };
    constexpr int kSteps = 3;
    if (wrapper == Wrapper::kSeparate) {
      dist::SeparateDistributedDataParallel ddp(gan, options);
      ddp.attach(gm, gan.disc);
      ddp.attach(gm_g, gan.gen);
      remember();
      for (int step = 0; step < kSteps; ++step)
        train_step(
            gan, step, gm, gm_g, opt_d, opt_g, [&] { return gm.record(); }, [&] { return gm_g.record(); });
    } else {
      dist::DistributedDataParallel ddp(gan, options);
      ddp.attach(gm);
      remember();
      const auto record = [&](const nn::Module& network) {
        return wrapper == Wrapper::kDynamic ? gm.record({.only = network.parameters()}) : gm.record();
      };
      for (int step = 0; step < kSteps; ++step)
        train_step(
            gan, step, gm, gm, opt_d, opt_g, [&] { return record(gan.disc); },
            [&] { return record(gan.gen); });
    }
    // Running statistics are each rank's own with a wrapper per network.
    dist::check_synchronized(gan.named_parameters());
    int changed = 0;
    const std::vector<Tensor> after = gan.parameters();
    for (size_t i = 0; i < after.size(); ++i) changed += !equal(after[i], before[i]);
    EXPECT_GT(changed, int(after.size()) / 2);
  });
}

//                      wrapper, find_unused_parameters        | mmgeneration: static | dynamic
TEST(GanTutorial, WholeModel) {
  train<Dcgan>(Wrapper::kWhole, false);  //                     error
  train<Pggan>(Wrapper::kWhole, false);  //                                            error
}
TEST(GanTutorial, WholeModelThatFindsUnusedParameters) {
  train<Dcgan>(Wrapper::kWhole, true);  //                      error
  train<Pggan>(Wrapper::kWhole, true);  //                                             error
}
TEST(GanTutorial, WrapperPerNetwork) {
  train<Dcgan>(Wrapper::kSeparate, false);  //                  trains
  train<Pggan>(Wrapper::kSeparate, false);  //                                         error
}
TEST(GanTutorial, WrapperPerNetworkThatFindsUnusedParameters) {
  train<Dcgan>(Wrapper::kSeparate, true);  //                   trains
  train<Pggan>(Wrapper::kSeparate, true);  //                                          trains
}
TEST(GanTutorial, DynamicRunner) {
  train<Dcgan>(Wrapper::kDynamic, true);  //                    trains
  train<Pggan>(Wrapper::kDynamic, true);  //                                           trains
}

}  // namespace
}  // namespace gradus
