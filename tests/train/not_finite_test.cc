// A small GAN with a NaN or infinity on its last rank: the training ends on all ranks (threads) with an error
// that names step, network, rank and loss term (kStop), or all ranks skip the network's step (kSkip).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>

#include "gradus/gradus.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

struct Points : data::Dataset {
  int64_t size() const override { return 48; }
  data::Sample get(int64_t i) const override {
    return {.input = tensor(std::vector<double>{double(i) / 48, 1 - double(i) / 48}, {2})};
  }
};

struct Mlp : nn::Layer {
  using Layer::Layer;
  nn::Linear first{this, "first", {.in = 2, .out = 8}};
  nn::BatchNorm1d bn{this, "bn", {.features = 8}};
  nn::Linear last{this, "last", {.in = 8, .out = 2}};
  Tensor forward(const Tensor& x) override { return last(tanh(bn(first(x)))); }
};
struct Gan : nn::Module {
  Mlp gen{this, "gen"}, disc{this, "disc"};
};

// The term or gradient that becomes `value`, on the last rank, in steps `from` to `to`.
enum class Source { kNone, kLossD, kPenalty, kLossG, kGradientD, kGradientG };
struct Fault {
  Source source = Source::kNone;
  double value = NAN;
  int64_t from = 3, to = 3;
};

struct Settings {
  training::RunOptions options = {.images = 96, .log_interval = 1};
  training::OnNotFinite on = training::OnNotFinite::kStop;
  bool leaves_out = false;  // the test itself skips these steps: the reference of kSkip
};

struct Outcome {
  std::vector<double> state;
  int64_t skipped = 0, steps = 0;
};

Outcome train_gan(const Fault& fault, const Settings& run) {
  Gan net;
  net.to(DType::kF64);
  int64_t i = 0;
  for (const Tensor& p : net.parameters()) {
    std::vector<double> v(size_t(p.numel()));
    for (double& x : v) x = 0.3 * std::sin(double(++i));
    copy_(p, tensor(v, p.shape()));
  }
  data::DataLoader loader(Points(), {.global_batch_size = 12, .drop_last = true});
  dist::SeparateDistributedDataParallel ddp(net, {.broadcast_buffers = false, .check_finite = true});
  GradManager gm_d, gm_g;
  ddp.attach(gm_d, net.disc);
  ddp.attach(gm_g, net.gen);
  optim::Adam opt_d(net.disc.parameters(), {.lr = 0.01}), opt_g(net.gen.parameters(), {.lr = 0.01});
  training::Training training("points", run.options, loader,
                              {{"model", net}, {"optimizer_disc", opt_d}, {"optimizer_gen", opt_g}},
                              {.on_not_finite = run.on});
  for (training::Step& s : training) {
    const bool bad = s.number() >= fault.from && s.number() <= fault.to &&
                     dist::get_rank() == dist::get_world_size() - 1 && !run.leaves_out;
    const auto at = [&](Source source, const Tensor& x) {
      return bad && fault.source == source ? x * fault.value : x;
    };
    // A finite loss with a gradient that is not finite: sqrt(0).
    const auto root = [&](Source source, const nn::Module& part) {
      const Tensor zero = sum(square(part.parameters()[0])) * 0;
      return bad && fault.source == source ? sqrt(zero) : zero;
    };
    const bool in_range = s.number() >= fault.from && s.number() <= fault.to && run.leaves_out;
    const bool leave_d = in_range && fault.source != Source::kLossG && fault.source != Source::kGradientG;
    const bool leave_g = in_range && !leave_d;
    std::vector<Tensor> buffers;
    for (const Tensor& b : net.buffers()) buffers.push_back(clone(b));
    const Tensor z = to(s.randn({2}), DType::kF64);
    {
      auto recording = gm_d.record();
      const Tensor real = s.batch().input, fake = detach(net.gen(z));
      const Tensor penalty = at(Source::kPenalty, gan::r1(net.disc, real));
      Tensor loss = at(Source::kLossD, gan::wgan_d(net.disc(real), net.disc(fake))) +
                    root(Source::kGradientD, net.disc) + s.log("penalty", penalty);
      s.log("loss/d", loss);
      if (!leave_d && s.backward("disc", recording, loss)) opt_d.step().clear_grad();
    }
    if (leave_d) {
      const std::vector<Tensor> now = net.buffers();
      for (size_t b = 0; b < now.size(); ++b) copy_(now[b], buffers[b]);
    }
    auto recording = gm_g.record();
    Tensor loss = at(Source::kLossG, gan::wgan_g(net.disc(net.gen(z)))) + root(Source::kGradientG, net.gen);
    s.log("loss/g", loss);
    if (!leave_g && s.backward("gen", recording, loss)) opt_g.step().clear_grad();
    if (leave_g) {
      const std::vector<Tensor> now = net.buffers();
      for (size_t b = 0; b < now.size(); ++b) copy_(now[b], buffers[b]);
    }
    if (dist::get_world_size() > 1)
      dist::bcast_list_(net.buffers());  // batch norm's buffers differ between ranks
  }
  Outcome outcome = {.state = {}, .skipped = training.skipped(), .steps = training.steps()};
  for (const auto& [name, t] : net.state_dict())
    for (const double v : to(t, DType::kF64).to_vector<double>()) outcome.state.push_back(v);
  return outcome;
}

struct Case {
  const char* name;
  Source source;
  const char* network;
  const char* term;  // the logged value that is not finite; null: none
};
const Case kCases[] = {{"LossD", Source::kLossD, "disc", "loss/d"},
                       {"Penalty", Source::kPenalty, "disc", "penalty"},
                       {"LossG", Source::kLossG, "gen", "loss/g"},
                       {"GradientD", Source::kGradientD, "disc", nullptr},
                       {"GradientG", Source::kGradientG, "gen", nullptr}};

class NotFinite : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Sources, NotFinite, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(NotFinite, EndsAllRanksWithinTwoSecondsAndSaysWhere) {
  const Case& c = GetParam();
  for (const int world : {1, 3})
    for (const double value : {double(NAN), double(INFINITY)}) {
      const auto begin = std::chrono::steady_clock::now();
      const auto errors = dist::errors_of(world, [&] { train_gan({c.source, value}, {}); });
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
      const std::string last = std::to_string(world - 1);
      EXPECT_THAT(errors, Each(AllOf(HasSubstr("step 3, " + std::string(c.network) + ": "),
                                     HasSubstr("rank " + last + " has NaN or infinity in the gradient of "),
                                     HasSubstr(" in the gradient of " + std::string(c.network) + "."),
                                     HasSubstr("before"), HasSubstr("loss/g was "))))
          << world;
      if (c.term)
        EXPECT_THAT(errors, Each(AllOf(HasSubstr(std::string("; ") + c.term + " is "),
                                       HasSubstr(" on rank " + last))));
      else
        EXPECT_THAT(errors, Each(Not(HasSubstr(" is NaN"))));
    }
}

TEST_P(NotFinite, KeepsTheCheckpointOfBefore) {
  const std::string folder = testing::TempDir() + "/not_finite_test";
  std::filesystem::remove_all(folder);
  const Settings run = {.options = {.images = 96, .checkpoint_dir = folder, .checkpoint_interval = 2}};
  const auto errors = dist::errors_of(2, [&] { train_gan({GetParam().source}, run); });
  EXPECT_THAT(errors, Each(HasSubstr("points.ckpt stays as it was before")));
  EXPECT_EQ(io::load_checkpoint(folder + "/points.ckpt").checkpoint.get<int64_t>("steps"), 2);
  std::filesystem::remove_all(folder);
}

// Weights and buffers are those of a training without this network's steps 3 and 4.
TEST_P(NotFinite, IsLeftOutOnAllRanksAlike) {
  for (const int world : {1, 2}) {
    const Fault fault = {GetParam().source, NAN, 3, 4};
    std::mutex mutex;
    std::vector<Outcome> skipped, left_out;
    for (const bool by_test : {false, true})
      dist::run_ranks(world, [&] {
        Outcome o = train_gan(fault, {.on = training::OnNotFinite::kSkip, .leaves_out = by_test});
        const std::lock_guard lock(mutex);
        (by_test ? left_out : skipped).push_back(std::move(o));
      });
    for (const Outcome& o : skipped) {
      EXPECT_EQ(o.skipped, 2);
      EXPECT_EQ(o.steps, 8);
      EXPECT_EQ(o.state, skipped[0].state);
      EXPECT_EQ(o.state, left_out[0].state);
    }
  }
}

TEST(NotFinite, AHundredStepsInARowEndTheTraining) {
  const Settings run = {.options = {.images = 12 * 300}, .on = training::OnNotFinite::kSkip};
  const auto errors = dist::errors_of(2, [&] { train_gan({Source::kLossD, NAN, 3, 1000}, run); });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("step 102, disc: "), HasSubstr("100 steps in a row"))));
  // 99 steps in a row are allowed.
  dist::run_ranks(1, [&] { EXPECT_EQ(train_gan({Source::kLossD, NAN, 3, 101}, run).skipped, 99); });
}

TEST(NotFinite, TheLogCountsWhatWasLeftOutAndTheCheckpointKeepsIt) {
  const std::string folder = testing::TempDir() + "/not_finite_count";
  std::filesystem::remove_all(folder);
  Settings run = {.options = {.images = 48, .log_interval = 1, .checkpoint_dir = folder},
                  .on = training::OnNotFinite::kSkip};
  testing::internal::CaptureStdout();
  EXPECT_EQ(train_gan({Source::kLossD}, run).skipped, 1);
  run.options.images = 96;
  EXPECT_EQ(train_gan({Source::kLossD, NAN, 6, 6}, run).skipped, 2);
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("Left out: step 3, disc: rank 0 has NaN or infinity in the gradient of "));
  EXPECT_THAT(log, HasSubstr("  skipped 1  "));
  EXPECT_THAT(log, HasSubstr("  skipped 2  "));
  std::filesystem::remove_all(folder);
}

TEST(NotFinite, AValueThatIsLoggedAloneStillEndsTheTraining) {
  Gan net;
  data::DataLoader loader(Points(), {.batch_size = 12});
  training::Training training("points", {.images = 96}, loader, {{"model", net}},
                              {.on_not_finite = training::OnNotFinite::kSkip});
  EXPECT_ERROR(ValueError,
               for (training::Step& s
                    : training) s.log("loss/d", double(NAN)),
               "step 1: loss/d is NaN");
}

}  // namespace
}  // namespace gradus
