// StyleGAN, while it grows, and StyleGAN2, with lazy penalties, under every kind of data parallelism: on 1, 2 and 4
// ranks the weights, the averages of styles and the mean path length are those of one rank on the joined batch. Each
// rank decides alone whether it mixes styles, and then calls the mapping twice.
#include <gtest/gtest.h>

#include "gradus/gradus.h"
#include "gradus/tests/distributed/data_parallel/gan_states.h"

namespace gradus {
namespace {

using dist::State;

constexpr int kSteps = 4;
constexpr int64_t kBatch = 8, kLatent = 4;

struct Style1 : nn::Module {
  models::StyleGANGenerator gen{this,
                                "gen",
                                {.size = 16,
                                 .channels = 1,
                                 .latent = kLatent,
                                 .style = 4,
                                 .mapping_layers = 2,
                                 .channel_base = 16,
                                 .channel_max = 4}};
  models::StyleGANDiscriminator disc{
      this, "disc", {.size = 16, .channels = 1, .channel_base = 16, .channel_max = 4}};
  models::Scale scale = {.size = 8};

  void begin(int step) { scale = {.size = step < 2 ? 8 : 16, .fade = 0.25 * (step + 1)}; }
  Tensor synthesize(const Tensor& ws, const std::vector<Tensor>& noise) {
    return gen.synthesis(ws, scale, {.planes = noise});
  }
  Tensor judge(const Tensor& x) { return disc(x, scale); }
  std::vector<int64_t> noise_sizes() const { return gen.noise_sizes(scale); }
  void update_w_avg(const Tensor& w) { gen.update_w_avg(w); }
  static constexpr int kDiscPenaltyEvery = 1, kGenPenaltyEvery = 0;  // 0: never
};

struct Style2 : nn::Module {
  models::StyleGAN2Generator gen{this,
                                 "gen",
                                 {.size = 8,
                                  .channels = 1,
                                  .latent = kLatent,
                                  .style = 4,
                                  .mapping_layers = 2,
                                  .channel_base = 32,
                                  .channel_max = 4}};
  models::StyleGAN2Discriminator disc{
      this, "disc", {.size = 8, .channels = 1, .channel_base = 32, .channel_max = 4}};
  models::Scale scale = {.size = 8};

  void begin(int) {}
  Tensor synthesize(const Tensor& ws, const std::vector<Tensor>& noise) {
    return gen.synthesis(ws, {.planes = noise});
  }
  Tensor judge(const Tensor& x) { return disc(x); }
  std::vector<int64_t> noise_sizes() const { return gen.synthesis.noise_sizes(); }
  void update_w_avg(const Tensor& w) { gen.mapping.update_w_avg(w); }
  static constexpr int kDiscPenaltyEvery = 2, kGenPenaltyEvery = 2;
};

enum class Wrapper { kSeparate, kWhole, kWholeUnused, kWholeOnly, kCallbacks };

// The recordings of both networks.
template <class Nets> class Parallel {
 public:
  Parallel(Nets& net, Wrapper wrapper) : net_(net), wrapper_(wrapper) {
    if (wrapper == Wrapper::kCallbacks) {
      dist::bcast_list_(net);
      gm_d_.attach(net.disc.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
      gm_g_.attach(net.gen.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
    } else if (wrapper == Wrapper::kSeparate) {
      separate_ = std::make_unique<dist::SeparateDistributedDataParallel<Nets>>(net);
      separate_->attach(gm_d_, net.disc);
      separate_->attach(gm_g_, net.gen);
    } else {
      whole_ = std::make_unique<dist::DistributedDataParallel<Nets>>(
          net,
          dist::DistributedDataParallelOptions{.find_unused_parameters = wrapper == Wrapper::kWholeUnused});
      whole_->attach(gm_d_);
    }
  }
  Recording of_disc() { return record(gm_d_, net_.disc); }
  Recording of_gen() { return record(whole_ ? gm_d_ : gm_g_, net_.gen); }

 private:
  Recording record(GradManager& gm, const nn::Module& part) {
    return wrapper_ == Wrapper::kWholeOnly ? gm.record({.only = part.parameters()}) : gm.record();
  }
  Nets& net_;
  const Wrapper wrapper_;
  GradManager gm_d_, gm_g_;
  std::unique_ptr<dist::DistributedDataParallel<Nets>> whole_;
  std::unique_ptr<dist::SeparateDistributedDataParallel<Nets>> separate_;
};

// This rank's samples of the batch `name`.
Tensor numbers(const std::string& name, const Shape& sample) {
  return dist::samples(name, kBatch, sample, 1, dist::get_rank(), dist::get_world_size());
}

// Makes images of new latents, and returns them with their styles. Samples 0 and 4 have mixed styles: on 4 ranks only
// those of the first rank.
template <class Nets> std::pair<Tensor, Tensor> generate(Nets& net, const std::string& name) {
  Tensor ws = net.gen.mapping(numbers(name + "z", {kLatent}));
  net.update_w_avg(
      dist::functional::all_reduce(mean(detach(select(ws, 1, 0)), {0}, true), dist::ReduceOp::kMean));
  std::vector<int64_t> cuts;
  for (int64_t i = dist::get_rank(); i < kBatch; i += dist::get_world_size())
    cuts.push_back(i % 4 == 0 ? 2 : ws.size(1));
  if (std::ranges::count(cuts, 2) > 0)
    ws = gan::mix_styles(ws, net.gen.mapping(numbers(name + "mixed", {kLatent})), tensor(cuts));
  std::vector<Tensor> noise;
  for (const int64_t size : net.noise_sizes())
    noise.push_back(numbers(concat(name, "noise", noise.size()), {1, size, size}));
  return {net.synthesize(ws, noise), ws};
}

// Returns the state after the training.
template <class Nets> State train(Wrapper wrapper) {
  Nets net;
  dist::set_weights(net, dist::get_rank());
  dist::convert_sync_minibatch_stddev(net);
  Parallel<Nets> parallel(net, wrapper);
  // A large eps: gradients that are 0 but for rounding must not become steps of size lr.
  const optim::AdamOptions adam = {.lr = 0.01, .betas = {0, 0.99}, .eps = 1e-2};
  optim::Adam opt_d(net.disc.parameters(), gan::lazy_regularization(adam, 2));
  optim::Adam opt_g(net.gen.parameters(), gan::lazy_regularization(adam, 2));
  gan::PathLengthPenalty path_length;
  const auto update = [&](Recording& recording, optim::Adam& opt, const Tensor& loss) {
    recording.backward(loss);
    opt.step();
    opt_d.clear_grad(), opt_g.clear_grad();
  };
  const auto disc = [&](const Tensor& x) { return net.judge(x); };
  for (int step = 0; step < kSteps; ++step) {
    net.begin(step);
    const auto name = [&](const char* phase) { return concat(phase, step); };
    const Tensor real = numbers(name("real"), {1, net.scale.size, net.scale.size});
    Tensor fake;
    {
      const auto off = no_record();
      fake = generate(net, name("d")).first;
    }
    {
      Recording recording = parallel.of_disc();
      const Tensor real_scores = net.judge(real), fake_scores = net.judge(fake);
      update(recording, opt_d, gan::logistic_d(real_scores, fake_scores));
    }
    if (step % Nets::kDiscPenaltyEvery == 0) {
      Recording recording = parallel.of_disc();
      update(recording, opt_d, 5 * gan::r1(disc, real));
    }
    {
      Recording recording = parallel.of_gen();
      update(recording, opt_g, gan::logistic_g(net.judge(generate(net, name("g")).first)));
    }
    if (Nets::kGenPenaltyEvery > 0 && step % std::max(Nets::kGenPenaltyEvery, 1) == 0) {
      Recording recording = parallel.of_gen();
      const auto [images, ws] = generate(net, name("path"));
      const Tensor y = numbers(name("y"), {1, net.scale.size, net.scale.size});
      update(recording, opt_g, 2 * path_length(images, ws, y));
    }
  }
  State state;
  dist::add(state, "net.", net.state_dict());
  dist::add(state, "disc.", opt_d.state_dict());
  dist::add(state, "gen.", opt_g.state_dict());
  dist::add(state, "path.", path_length.state_dict());
  return state;
}

template <class Nets> void expect_one_rank_s_state() {
  State expected;
  dist::run_ranks(1, [&] { expected = train<Nets>(Wrapper::kCallbacks); });
  for (const int world : {1, 2, 4})
    for (const Wrapper wrapper : {Wrapper::kSeparate, Wrapper::kWhole, Wrapper::kWholeUnused,
                                  Wrapper::kWholeOnly, Wrapper::kCallbacks})
      dist::run_ranks(world, [&] {
        EXPECT_EQ(dist::difference(train<Nets>(wrapper), expected, 1e-10), "")
            << world << " ranks, wrapper " << int(wrapper);
      });
}

TEST(StyleGANOnRanks, HasTheStateOfOneRank) { expect_one_rank_s_state<Style1>(); }
TEST(StyleGAN2OnRanks, HasTheStateOfOneRank) { expect_one_rank_s_state<Style2>(); }

}  // namespace
}  // namespace gradus
