// DCGAN, LSGAN, WGAN-GP and PGGAN under every kind of data parallelism: 20 steps on several ranks against one
// process on the joined batch, in f64, with batch norm and minibatch standard deviation over all ranks. PGGAN
// grows twice meanwhile, and fades. gan_table_test.cc has stand-ins for what these four do not do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/models/models.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/tests/distributed/data_parallel/gan_states.h"
#include "gradus/train/gan/gan.h"

namespace gradus::dist {
namespace {

using models::Scale;

constexpr int kSteps = 20;
constexpr int64_t kBatch = 8;  // of all ranks: two groups of the minibatch standard deviation
// Sums over the batch in another order round by about 1e-16 of a gradient. Adam's eps of 1e-3 keeps a step's
// error below lr / eps times that, and twenty steps amplify it some hundred times.
constexpr double kTolerance = 1e-10;

// ---- the networks ----

struct Gan : nn::Module {
  nn::Module *gen = nullptr, *disc = nullptr;
  std::function<Tensor(const Tensor& z, Scale)> generate;
  std::function<Tensor(const Tensor& x, Scale)> judge;
};

// A network is called with the scale if it takes one.
template <class G, class D> struct GanOf : Gan {
  GanOf(typename G::Options g, typename D::Options d) : g_(this, "gen", g), d_(this, "disc", d) {
    gen = &g_, disc = &d_;
    generate = [this](const Tensor& z, Scale scale) { return called(g_, z, scale); };
    judge = [this](const Tensor& x, Scale scale) { return called(d_, x, scale); };
  }

 private:
  template <class Net> static Tensor called(Net& net, const Tensor& x, Scale scale) {
    if constexpr (requires { net(x, scale); })
      return net(x, scale);
    else
      return net(x);
  }
  G g_;
  D d_;
};

struct Model {
  std::string name;
  int64_t channels, latent;
  std::function<std::unique_ptr<Gan>()> make;
  std::function<Tensor(const Tensor& real, const Tensor& fake)> loss_d;
  std::function<Tensor(const Tensor& fake)> loss_g;
  bool penalty;
  std::function<Scale(int step)> scale;
};

// 4x4 pixels for four steps, 8x8 from then on, 16x16 from step 12 on. Each growth fades in for four steps.
Scale growing(int step) {
  if (step < 4) return {.size = 4};
  const int since = step < 12 ? step - 4 : step - 12;
  return {.size = step < 12 ? 8 : 16, .fade = std::min(1.0, (since + 1) / 5.0)};
}

template <class G, class D>
std::function<std::unique_ptr<Gan>()> maker(typename G::Options g, typename D::Options d) {
  return [g, d] { return std::make_unique<GanOf<G, D>>(g, d); };
}

const std::vector<Model>& all_models() {
  const auto fixed = [](int64_t size) { return [size](int) { return Scale{.size = size}; }; };
  static const std::vector<Model> all = {
      {"Dcgan", 1, 6,
       maker<models::DCGANGenerator, models::DCGANDiscriminator>(
           {.size = 16, .channels = 1, .width = 2, .latent = 6}, {.size = 16, .channels = 1, .width = 2}),
       [](const Tensor& r, const Tensor& f) { return gan::vanilla_d(r, f); },
       [](const Tensor& f) { return gan::vanilla_g(f); }, false, fixed(16)},
      {"Lsgan", 1, 3,
       maker<models::LSGANGenerator, models::LSGANDiscriminator>(
           {.size = 32, .channels = 1, .width = 4, .latent = 3}, {.size = 32, .channels = 1, .width = 2}),
       [](const Tensor& r, const Tensor& f) { return gan::lsgan_d(r, f); },
       [](const Tensor& f) { return gan::lsgan_g(f); }, false, fixed(32)},
      {"WganGp", 3, 5,
       maker<models::WGANGPGenerator, models::WGANGPDiscriminator>(
           {.size = 8, .latent = 5, .channel_base = 16, .channel_max = 4},
           {.size = 8, .channel_base = 16, .channel_max = 4}),
       gan::wgan_d, gan::wgan_g, true, fixed(8)},
      {"Pggan", 3, 5,
       maker<models::PGGANGenerator, models::PGGANDiscriminator>(
           {.size = 16, .latent = 5, .channel_base = 16, .channel_max = 4},
           {.size = 16, .channel_base = 16, .channel_max = 4}),
       gan::wgan_d, gan::wgan_g, true, growing}};
  return all;
}

// ---- the ways to train them ----

enum class Row { kAlone, kWhole, kWholeNarrowed, kSeparate, kCallbacks };
constexpr const char* kRowNames[] = {"Alone", "Whole", "WholeNarrowed", "Separate", "Callbacks"};

struct Cell {
  size_t model;
  Row row;
  int world;
};

std::string name_of(const Cell& c) {
  return all_models()[c.model].name + "_" + kRowNames[int(c.row)] + "_" + std::to_string(c.world) + "Ranks";
}

// Number of bytes of the parameters with a gradient.
int64_t bytes_touched(const nn::Module& m) {
  int64_t bytes = 0;
  for (const Tensor& p : m.parameters())
    if (p.grad().defined()) bytes += 8 * p.numel();
  return bytes;
}

class Training {
 public:
  explicit Training(const Cell& cell) : cell_(cell), model_(all_models()[cell.model]), net_(model_.make()) {
    Gan& net = *net_;
    set_weights(net, rank());
    if (cell.row != Row::kAlone) {
      convert_sync_batchnorm(net);
      convert_sync_minibatch_stddev(net);
    }
    switch (cell.row) {
      case Row::kAlone:
        gm_d_.attach(net.disc->parameters());
        gm_g_.attach(net.gen->parameters());
        break;
      case Row::kWhole:
      case Row::kWholeNarrowed:
        whole_ = std::make_unique<DistributedDataParallel<Gan>>(net);
        whole_->attach(gm_d_);
        break;
      case Row::kSeparate:
        separate_ = std::make_unique<SeparateDistributedDataParallel<Gan>>(net);
        separate_->attach(gm_d_, *net.disc);
        separate_->attach(gm_g_, *net.gen);
        break;
      case Row::kCallbacks:
        bcast_list_(net);
        cb_d_ = make_allreduce_cb(ReduceOp::kMean);
        cb_g_ = make_allreduce_cb(ReduceOp::kMean);
        gm_d_.attach(net.disc->parameters(), cb_d_);
        gm_g_.attach(net.gen->parameters(), cb_g_);
        break;
    }
    const optim::AdamOptions adam = {.lr = 1e-3, .betas = {0.5, 0.99}, .eps = 1e-3};
    opt_d_.emplace(net.disc->parameters(), adam);
    opt_g_.emplace(net.gen->parameters(), adam);
    ema_.emplace(*net.gen, gan::EmaOptions{.half_life_images = 20});
  }

  // Makes a step of each network. Returns which of them has sent other bytes than those of the parameters
  // that it touched; "" if none.
  std::string step(int number) {
    Gan& net = *net_;
    const Scale scale = model_.scale(number);
    const std::string n = std::to_string(number);
    const Tensor real = samples("real" + n, {model_.channels, scale.size, scale.size}, 1);
    std::string wrong;
    {
      auto recording = record(*net.disc, gm_d_);
      const auto generate = [&] { return net.generate(samples("zd" + n, {model_.latent}, 2), scale); };
      // Of one manager for both networks, nothing narrows this recording. A batch norm over ranks records
      // collectives in the generator, which detach(fake) would not cut off.
      const Tensor fake = cell_.row == Row::kWhole ? without_recording(generate) : generate();
      const auto judge = [&](const Tensor& x) { return net.judge(x, scale); };
      const Tensor real_scores = judge(real);
      Tensor loss = model_.loss_d(real_scores, judge(fake));
      if (model_.penalty) {
        const Tensor alpha = (samples("alpha" + n, {}, 1) + 1) / 2;
        loss = loss + 10 * gan::gradient_penalty(judge, real, fake, alpha) + 0.001 * gan::drift(real_scores);
      }
      gm_d_.backward(loss);
      wrong += compare_bytes("D step " + n, *net.disc, bytes_touched(*net.disc));
      clear(*net.gen);  // of the whole model with one manager
      opt_d_->step();
      clear(*net.disc);
    }
    GradManager& gm = whole_ ? gm_d_ : gm_g_;
    auto recording = record(*net.gen, gm);
    gm.backward(model_.loss_g(net.judge(net.generate(samples("zg" + n, {model_.latent}, 2), scale), scale)));
    wrong +=
        compare_bytes("G step " + n, *net.gen,
                      bytes_touched(*net.gen) + (cell_.row == Row::kWhole ? bytes_touched(*net.disc) : 0));
    opt_g_->step();
    clear(net);
    ema_->update((number + 1) * kBatch);
    return wrong;
  }

  // All of the state: parameters and buffers, averages, optimizers.
  State state() const {
    State all;
    add(all, "", net_->state_dict());
    add(all, "ema.", ema_->weights());
    add(all, "opt_d.", opt_d_->state_dict());
    add(all, "opt_g.", opt_g_->state_dict());
    return all;
  }

 private:
  Recording record(const nn::Module& part, GradManager& gm) {
    return cell_.row == Row::kWholeNarrowed ? gm.record({.only = part.parameters()}) : gm.record();
  }
  template <class F> static Tensor without_recording(F f) {
    const NoRecord off = no_record();
    return f();
  }
  static void clear(const nn::Module& m) {
    for (const Tensor& p : m.parameters()) p.set_grad({});
  }
  int rank() const { return cell_.row == Row::kAlone ? 0 : get_rank(); }
  Tensor samples(const std::string& name, const Shape& sample, double scale) const {
    return dist::samples(name, kBatch, sample, scale, rank(), cell_.world);
  }
  std::string compare_bytes(const std::string& when, const nn::Module& part, int64_t touched) const {
    if (cell_.row == Row::kAlone) return "";
    const ReducerStats& stats = whole_                ? whole_->stats()
                                : separate_           ? separate_->stats(part)
                                : &part == net_->disc ? cb_d_->stats()
                                                      : cb_g_->stats();
    if (stats.bytes == touched) return "";
    return when + ": " + std::to_string(stats.bytes) + " bytes, but it has touched " +
           std::to_string(touched) + "\n";
  }

  const Cell cell_;
  const Model& model_;
  const std::unique_ptr<Gan> net_;
  GradManager gm_d_, gm_g_;
  std::unique_ptr<DistributedDataParallel<Gan>> whole_;
  std::unique_ptr<SeparateDistributedDataParallel<Gan>> separate_;
  std::shared_ptr<AllReduceCallback> cb_d_, cb_g_;
  std::optional<optim::Adam> opt_d_, opt_g_;
  std::optional<gan::Ema> ema_;
};

const State& alone(size_t model) {
  static std::map<size_t, State> known;
  State& state = known[model];
  if (state.empty()) {
    Training t({.model = model, .row = Row::kAlone, .world = 1});
    for (int step = 0; step < kSteps; ++step) t.step(step);
    state = t.state();
  }
  return state;
}

// Trains a cell on this rank. Returns what is wrong; "" if nothing.
std::string train_cell(const Cell& c, const State& expected) {
  Training t(c);
  std::string wrong;
  for (int step = 0; step < kSteps; ++step) wrong += t.step(step);
  return wrong + difference(t.state(), expected, kTolerance);
}

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (size_t model = 0; model < all_models().size(); ++model)
    for (const int world : {2, 4})
      for (const Row row : {Row::kWhole, Row::kWholeNarrowed, Row::kSeparate, Row::kCallbacks})
        all.push_back({model, row, world});
  return all;
}

class NamedGans : public testing::TestWithParam<Cell> {};

TEST_P(NamedGans, RanksComeToWhatTheJoinedBatchGives) {
  const Cell c = GetParam();
  const State& expected = alone(c.model);
  run_ranks(c.world, [&] { EXPECT_EQ(train_cell(c, expected), "") << "rank " << get_rank(); });
}

INSTANTIATE_TEST_SUITE_P(All, NamedGans, testing::ValuesIn(cells()),
                         [](const auto& info) { return name_of(info.param); });

// The test sees what it should: a training on other samples ends elsewhere.
TEST(NamedGans, AreTrainedAtAll) {
  for (size_t model = 0; model < all_models().size(); ++model) {
    Training t({.model = model, .row = Row::kAlone, .world = 1});
    const State before = t.state();
    for (const auto& [name, values] : alone(model)) {
      const bool constant = name.find("num_batches") != std::string::npos || name.starts_with("opt_");
      if (constant || !before.count(name)) continue;
      EXPECT_NE(before.at(name), values) << name;
    }
  }
}

}  // namespace
}  // namespace gradus::dist
