// Pipeline::forward against the undivided model, its use for evaluation, and two trainings in one program:
// the two networks of a GAN, and two pipelines.
#include <gtest/gtest.h>

#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tests/distributed/pipeline/unet_training.h"

namespace gradus::dist {
namespace {

Tensor tokens(int64_t rows) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < rows * 5; ++i) all.push_back((i * i + i) % 11);
  return tensor(all, {rows, 5});
}

TEST(PipelineForward, ReturnsTheModelsResult) {
  const Tensor x = tokens(7);
  manual_seed(5);
  const Tensor want = (*make_f64<TiedText>())(x);
  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZeroBubbleV})
    run_ranks(2, [&] {
      manual_seed(5);
      PipelineOptions options{.schedule = schedule, .micro_batches = 4, .cut_after = {"b0"}};
      if (schedule == Schedule::kZeroBubbleV)
        options.interleave = 2, options.cut_after = {"embed", "b0", "b1"};
      Pipeline<TiedText> pipe(make_f64<TiedText>, tokens(2), options);
      const int last = schedule == Schedule::kZeroBubbleV ? 0 : 1;
      const Tensor y = pipe.forward(x);
      EXPECT_EQ(y.defined(), get_rank() == last);
      if (y.defined()) expect_near(y, want, 1e-12);
      expect_near(pipe.forward(x, {.everywhere = true}), want, 1e-12);
      expect_near(pipe.forward(tokens(1), {.everywhere = true}), narrow(want, 0, 0, 1), 1e-12);
    });
}

// A result of several tensors. One of them may be undefined.
struct Heads {
  Tensor mean, spread, none;
};
struct TwoHeads : nn::Module {
  nn::Linear fc{this, "fc", {.in = 4, .out = 4}};
  nn::Linear mean{this, "mean", {.in = 4, .out = 2}}, spread{this, "spread", {.in = 4, .out = 1}};
  Heads operator()(const Tensor& x) {
    return call([&] {
      const Tensor h = tanh(fc(x));
      return Heads{mean(h), exp(spread(h)), {}};
    });
  }
};

TEST(PipelineForward, ReturnsAResultOfSeveralTensors) {
  const Tensor x = random_tensor({5, 4});
  manual_seed(5);
  TwoHeads model;
  const Heads want = model(x);
  run_ranks(2, [&] {
    manual_seed(5);
    Pipeline<TwoHeads> pipe([] { return std::make_unique<TwoHeads>(); }, zeros({2, 4}),
                            {.micro_batches = 2, .cut_after = {"fc"}});
    const Heads got = pipe.forward(x, {.everywhere = true});
    expect_near(got.mean, want.mean, 1e-6);
    expect_near(got.spread, want.spread, 1e-6);
    EXPECT_FALSE(got.none.defined());
  });
}

// Nine samples for two replicas: one has two batches, the other one.
TEST(PipelineForward, ReplicasMayHaveOtherNumbersOfBatches) {
  run_ranks(4, [] {
    Pipeline<TiedText> pipe(make_f64<TiedText>, tokens(2),
                            {.stages = 2, .micro_batches = 3, .cut_after = {"b0"}});
    pipe.eval();
    const int replica = pipe.grid().index("replica");
    double count = 0;
    for (const int64_t rows : replica == 0 ? std::vector<int64_t>{4, 1} : std::vector<int64_t>{4})
      if (const Tensor y = pipe.forward(tokens(rows)); y.defined()) count += double(y.size(0));
    const Tensor all = full({}, count, {.dtype = DType::kF64});
    all_reduce(all);
    EXPECT_EQ(all.item<double>(), 9);
  });
}

// ---- two trainings in one program

// A generator (maker) and a discriminator (judge), which rates real and generated samples.
struct GAN : nn::Module {
  struct Input {
    Tensor noise, real;
  };
  struct Output {
    Tensor fake, real;
  };
  struct Judge : nn::Layer {
    using Layer::Layer;
    nn::Linear fc1{this, "fc1", {.in = 4, .out = 6}}, fc2{this, "fc2", {.in = 6, .out = 1}};
    Tensor forward(const Tensor& x) override { return fc2(tanh(fc1(x))); }
  };
  nn::Linear maker{this, "maker", {.in = 3, .out = 4}};
  Judge judge{this, "judge"};
  Output operator()(const Input& in) {
    return call([&] { return Output{judge(tanh(maker(in.noise))), judge(in.real)}; });
  }
};

Tensor judge_loss(const GAN::Output& y, const Tensor&) {
  return nn::binary_cross_entropy_with_logits(y.real, ones_like(y.real)) +
         nn::binary_cross_entropy_with_logits(y.fake, zeros_like(y.fake));
}
Tensor maker_loss(const GAN::Output& y, const Tensor&) {
  return nn::binary_cross_entropy_with_logits(y.fake, ones_like(y.fake));
}

GAN::Input gan_input(int step) {
  return {random_tensor({8, 3}, DType::kF64, uint64_t(10 + step)),
          random_tensor({8, 4}, DType::kF64, uint64_t(20 + step))};
}

// One GradManager per network. The maker's gradient passes through the judge's rank.
TEST(PipelineGAN, TrainsAsOneProcessDoes) {
  constexpr int kSteps = 4;
  std::vector<double> want;
  manual_seed(5);
  const auto model = make_f64<GAN>();
  {
    GradManager of_judge, of_maker;
    of_judge.attach(model->judge.parameters());
    of_maker.attach(model->maker.parameters());
    optim::SGD judge_opt(model->judge.parameters(), {.lr = 0.2});
    optim::SGD maker_opt(model->maker.parameters(), {.lr = 0.2});
    for (int i = 0; i < kSteps; ++i) {
      for (auto [gm, opt, loss] :
           {std::tuple(&of_judge, &judge_opt, &judge_loss), std::tuple(&of_maker, &maker_opt, &maker_loss)}) {
        const auto recording = gm->record();
        const Tensor value = loss((*model)(gan_input(i)), {});
        gm->backward(value);
        want.push_back(value.item<double>());
        opt->step().clear_grad();
      }
    }
  }
  run_ranks(2, [&] {
    manual_seed(5);
    Pipeline<GAN, GAN::Input> pipe(make_f64<GAN>, gan_input(0), {.micro_batches = 4, .cut_after = {"maker"}});
    // A rank has one of the networks.
    const bool is_maker = get_rank() == 0;
    GradManager of_judge, of_maker, &mine = is_maker ? of_maker : of_judge;
    mine.attach(pipe.parameters());
    optim::SGD opt(pipe.parameters(), {.lr = 0.2});
    std::vector<double> losses;
    for (int i = 0; i < kSteps; ++i) {
      losses.push_back(pipe.step(of_judge, gan_input(i), Tensor(), judge_loss));
      if (!is_maker) opt.step().clear_grad();
      losses.push_back(pipe.step(of_maker, gan_input(i), Tensor(), maker_loss));
      if (is_maker) opt.step().clear_grad();
    }
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(losses[i], want[i], 1e-12) << i;
    for (const auto& [name, p] : pipe.named_parameters()) expect_near(p, model->parameter(name), 1e-12);
  });
}

TEST(PipelineGAN, TwoPipelinesTrainByTurns) {
  const auto train = [](bool both) {
    std::map<std::string, std::vector<double>> all;
    std::mutex mutex;
    run_ranks(2, [&] {
      manual_seed(5);
      Pipeline<ResidualMLP> a([] { return std::make_unique<ResidualMLP>(); }, zeros({2, 6}),
                              {.micro_batches = 4, .cut_after = {"b1"}});
      manual_seed(6);
      std::optional<Pipeline<TiedText>> b;
      GradManager gm_a, gm_b;
      a.attach(gm_a);
      if (both) {
        b.emplace(make_f64<TiedText>, tokens(2),
                  PipelineOptions{.schedule = Schedule::kGPipe, .micro_batches = 3, .cut_after = {"b0"}});
        b->attach(gm_b);
      }
      optim::SGD opt(a.parameters(), {.lr = 0.1});
      for (int i = 0; i < 3; ++i) {
        const Tensor x = random_tensor({8, 6}, DType::kF32, uint64_t(i));
        a.step(gm_a, x, narrow(x, 1, 0, 3), nn::mse_loss);
        if (both)
          b->step(gm_b, tokens(6), tokens(6), [](const Tensor& y, const Tensor& t) {
            return nn::cross_entropy(flatten(y, 0, 1), flatten(t, 0, 1));
          });
        opt.step().clear_grad();
      }
      const std::lock_guard lock(mutex);
      for (const auto& [name, p] : a.named_parameters()) all[name] = p.to_vector<double>();
    });
    return all;
  };
  EXPECT_EQ(train(true), train(false));
}

}  // namespace
}  // namespace gradus::dist
