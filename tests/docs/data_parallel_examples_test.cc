// The examples of docs/guide/data-parallel.md: they compile and do what the page says. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using testing::Each;
using testing::ElementsAre;

struct Net : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 784, .out = 8}};
  nn::Linear fc2{this, "fc2", {.in = 8, .out = 10}};
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(flatten(x, 1)))); }
};

data::GeneratedDigits digits() { return data::GeneratedDigits({.size = 64}); }

TEST(DataParallelPage, FromOneProcessToMany) {
  dist::run_ranks(2, [] {
    const data::GeneratedDigits train = digits();
    Net net;
    dist::bcast_list_(net.parameters());
    GradManager gm;
    gm.attach(net.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean));
    optim::SGD opt(net.parameters(), {.lr = 0.01, .momentum = 0.9});
    data::DataLoader loader(train, {.batch_size = 16, .shuffle = true});  // sharded by rank
    for (const data::Batch& b : loader) {
      auto recording = gm.record();
      Tensor loss = nn::cross_entropy(net(b.input), b.target);
      gm.backward(loss);  // gradients are averaged when this returns
      opt.step().clear_grad();
    }
    dist::check_synchronized(net);
  });
}

TEST(DataParallelPage, Callbacks) {
  dist::run_ranks(4, [] {
    Tensor w = ones({2});
    GradManager gm;
    dist::Group half = dist::world().split(dist::get_rank() % 2);
    const auto clip = [](const Tensor&, const Tensor& g) { return clamp(g, -1, 1); };
    gm.attach(w, dist::make_allreduce_cb(dist::ReduceOp::kSum, {.group = half, .bucket_cap_mb = 10}), clip);
    {
      auto recording = gm.record();
      gm.backward(sum(w * 0.1 * dist::get_rank()));
    }
    EXPECT_THAT(w.grad().to_vector<float>(),
                Each(testing::FloatNear(dist::get_rank() % 2 ? 0.4f : 0.2f, 1e-6f)));
  });
}

TEST(DataParallelPage, WholeModel) {
  dist::run_ranks(2, [] {
    const Tensor x = ones({4, 784});
    Net net;
    optim::SGD opt(net.parameters(), {.lr = 0.01});
    dist::DistributedDataParallel ddp(
        net);  // checks that ranks have the same model, broadcasts rank 0's weights
    GradManager gm;
    ddp.attach(gm);
    {
      auto recording = gm.record();
      gm.backward(mean(ddp(x)));
      opt.step().clear_grad();
    }
    EXPECT_EQ(ddp.state_dict().size(), 4u);
    EXPECT_EQ(&ddp->fc1, &net.fc1);
    dist::check_synchronized(net);
  });
}

struct Gan : nn::Module {
  struct Generator : nn::Layer {
    using Layer::Layer;
    nn::Linear fc{this, "fc", {.in = 3, .out = 4}};
    std::unique_ptr<nn::Linear> grown;
    Tensor forward(const Tensor& z) override { return grown ? (*grown)(fc(z)) : fc(z); }
  } gen{this, "gen"};
  struct Discriminator : nn::Layer {
    using Layer::Layer;
    nn::Linear fc{this, "fc", {.in = 4, .out = 1}};
    Tensor forward(const Tensor& x) override { return tanh(fc(x)); }
  } disc{this, "disc"};
};

Tensor penalty(Gan& gan, const Tensor& fake, const Tensor& real) {
  const Tensor gx = autograd::grad([&](const Tensor& x) { return sum(gan.disc(x)); }, lerp(fake, real, 0.5));
  return 10 * mean(square(norm(gx, {1}) - 1));
}

TEST(DataParallelPage, GanWithTwoManagers) {
  dist::run_ranks(2, [] {
    Gan gan;
    dist::DistributedDataParallel ddp(gan);
    optim::Adam opt_d(gan.disc.parameters()), opt_g(gan.gen.parameters());
    const Tensor real = ones({2, 4}), z = randn({2, 3});
    GradManager gm_d, gm_g;
    ddp.attach(gm_d, ddp->disc);
    ddp.attach(gm_g, ddp->gen);
    {
      auto recording = gm_d.record();
      Tensor fake = gan.gen(z);  // nothing is recorded for the generator
      gm_d.backward(mean(gan.disc(fake)) - mean(gan.disc(real)) + penalty(gan, fake, real));
      opt_d.step().clear_grad();
    }
    {
      auto recording = gm_g.record();
      gm_g.backward(-mean(gan.disc(gan.gen(z))));
      opt_g.step().clear_grad();
    }
    EXPECT_EQ(ddp.stats().bytes, 4 * gan.gen.num_parameters());
    dist::check_synchronized(gan);
  });
}

TEST(DataParallelPage, GanNarrowed) {
  dist::run_ranks(2, [] {
    Gan gan;
    optim::Adam opt_d(gan.disc.parameters());
    const Tensor real = ones({2, 4}), z = randn({2, 3});
    dist::DistributedDataParallel ddp(gan);
    GradManager gm;
    ddp.attach(gm);
    {
      auto recording = gm.record({.only = ddp->disc.parameters()});
      gm.backward(mean(gan.disc(gan.gen(z))) - mean(gan.disc(real)));
      opt_d.step().clear_grad();
    }
    EXPECT_EQ(ddp.stats().bytes, 4 * gan.disc.num_parameters());
    dist::check_synchronized(gan);
  });
}

TEST(DataParallelPage, GanPerModule) {
  dist::run_ranks(2, [] {
    Gan gan;
    GradManager gm_d, gm_g;
    dist::SeparateDistributedDataParallel ddp(gan);
    ddp.attach(gm_d, ddp->disc);
    ddp.attach(gm_g, ddp->gen);
    {
      auto recording = gm_d.record();
      gm_d.backward(mean(gan.disc(ones({1, 4}))));
    }
    EXPECT_EQ(ddp.stats(gan.disc).backwards, 1);
    EXPECT_EQ(ddp.stats(gan.gen).backwards, 0);
    dist::check_synchronized(gan);
  });
}

TEST(DataParallelPage, Growth) {
  dist::run_ranks(2, [] {
    manual_seed(uint64_t(dist::get_rank()));
    Gan gan;
    Gan::Generator& gen = gan.gen;
    optim::Adam opt_g(gen.parameters());
    dist::DistributedDataParallel ddp(gan);
    GradManager gm;
    ddp.attach(gm);
    gen.grown = std::make_unique<nn::Linear>(&gen, "grown", nn::LinearOptions{.in = 4, .out = 4});
    opt_g.add_param_group(gen.grown->parameters(), {});
    auto recording = gm.record();  // from here on its weights are rank 0's, and its gradients are averaged
    gm.backward(mean(gan.disc(gen(randn({2, 3})))));
    opt_g.step().clear_grad();
    dist::check_synchronized(gan);
  });
}

TEST(DataParallelPage, NoSync) {
  dist::run_ranks(2, [] {
    Net net;
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    const Tensor x = ones({4, 784}), target = zeros({4}, {DType::kI64});
    const auto train = [&] {
      auto recording = gm.record();
      gm.backward(nn::cross_entropy(net(x), target) / 3);
    };
    {
      auto kept_back = ddp.no_sync();
      train();
      train();
    }
    train();  // sends the sum of all three
    opt.step().clear_grad();
    EXPECT_EQ(ddp.stats().backwards, 1);
    dist::check_synchronized(net);
  });
}

TEST(DataParallelPage, OptimizerWrapper) {
  dist::run_ranks(2, [] {
    const data::GeneratedDigits train = digits();
    data::DataLoader loader(train, {.batch_size = 8});
    Net net;
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    optim::OptimizerWrapper optimizer(
        opt, gm, {.accumulative_counts = 4, .clip_norm = 1.0, .no_sync = [&] { return ddp.no_sync(); }});
    for (const data::Batch& b : loader) {
      auto recording = optimizer.record();
      optimizer.update_params(nn::cross_entropy(net(b.input), b.target));
    }
    EXPECT_EQ(ddp.stats().backwards, 1);
    dist::check_synchronized(net);
  });
}

TEST(DataParallelPage, BatchNorm) {
  struct Normed : nn::Layer {
    nn::BatchNorm1d bn{this, "bn", {.features = 1}};
    Tensor forward(const Tensor& x) override { return bn(x); }
  };
  dist::run_ranks(2, [] {
    Normed net;
    dist::convert_sync_batchnorm(net);
    dist::DistributedDataParallel ddp(net);
    const Tensor y = net(full({2, 1}, dist::get_rank() ? 1 : -1));
    EXPECT_NEAR(y.to_vector<float>()[0], dist::get_rank() ? 1 : -1, 1e-4);
  });
}

TEST(DataParallelPage, OneProcess) {
  const Tensor x = ones({5, 784});
  const Device one = Device::parse("cpu:1"), two = Device::parse("cpu:2");
  dist::DataParallel<Net> net([] { return std::make_unique<Net>(); }, {.device_ids = {one, two}});
  GradManager gm;
  gm.attach(net->parameters());
  auto recording = gm.record();
  gm.backward(mean(net(x)));
  EXPECT_THAT(net->fc2.bias.grad().to_vector<float>(), Each(testing::FloatNear(0.1f, 1e-6f)));
}

TEST(DataParallelPage, TrainStep) {
  struct Trained : Gan {
    Tensor train_step(const Tensor& real, optim::OptimizerDict& optimizers) {
      auto recording = optimizers["disc"].record();
      Tensor loss = -mean(disc(real));
      optimizers["disc"].update_params(loss);
      return loss;
    }
  };
  dist::run_ranks(2, [] {
    Trained gan;
    dist::SeparateDistributedDataParallel ddp(gan);
    GradManager gm_d, gm_g;
    ddp.attach(gm_d, gan.disc);
    ddp.attach(gm_g, gan.gen);
    const Tensor real = ones({2, 4});
    optim::Adam opt_d(gan.disc.parameters()), opt_g(gan.gen.parameters());
    optim::OptimizerDict optimizers{{"disc", opt_d, gm_d}, {"gen", opt_g, gm_g}};
    Tensor loss = ddp.train_step(real, optimizers);
    EXPECT_TRUE(loss.defined());
    dist::check_synchronized(gan);
  });
}

TEST(DataParallelPage, Join) {
  dist::run_ranks(2, [] {
    Net net;
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    const std::vector<Tensor> batches(size_t(dist::get_rank()) + 1, ones({2, 784}));
    ddp.join([&] {
      for (const Tensor& x : batches) {  // more of them on one rank than on another
        auto recording = gm.record();
        gm.backward(mean(net(x)));
        opt.step().clear_grad();
      }
    });
    dist::check_synchronized(net);
  });
}

TEST(DataParallelPage, Hooks) {
  dist::run_ranks(2, [] {
    Net net;
    dist::DistributedDataParallel compressed(net, {.comm_hook = dist::bf16_compress_hook()});
    dist::CommHook times_ten = [](const dist::GradBucket& bucket) {
      dist::Work work = dist::all_reduce(
          bucket.buffer, {.op = dist::ReduceOp::kAvg, .group = bucket.group, .async_op = true});
      return [=] {
        work.wait();
        mul_(bucket.buffer, 10);
      };
    };
    dist::DistributedDataParallel ddp(net, {.comm_hook = times_ten});
    GradManager gm;
    ddp.attach(gm);
    auto recording = gm.record();
    gm.backward(sum(net.fc2.bias) * dist::get_rank());
    EXPECT_THAT(net.fc2.bias.grad().to_vector<float>(), Each(5));
  });
}

TEST(DataParallelPage, Checkpoints) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(testing::TempDir());
  std::filesystem::create_directories("runs");
  dist::run_ranks(2, [] {
    Net net;
    if (dist::get_rank() == 0) {
      fill_(net.fc2.bias, 3);
      io::Checkpoint c;
      c.put("model", net.state_dict());
      io::save_checkpoint("runs/last.ckpt", c);
    }
    const io::LoadedCheckpoint loaded = dist::bcast_checkpoint("runs/last.ckpt");
    net.load_state_dict(loaded.checkpoint.tensors("model"));
    EXPECT_THAT(net.fc2.bias.to_vector<float>(), Each(3));
    dist::check_synchronized(net);
  });
  for (const int world : {2, 3})  // the first writes, the second, of other ranks, reads
    dist::run_ranks(world, [&] {
      Net net;
      dist::DistributedDataParallel ddp(net);
      optim::SGD opt(net.parameters(), {.lr = 0.1});
      const data::GeneratedDigits digits({.size = 60});
      data::DataLoader loader(digits, {.batch_size = 4, .seed = 1});
      int64_t steps = world == 2 ? 7000 : 1;
      if (world == 2) fill_(net.fc2.bias, 5);
      TrainingState state{{"net", ddp}, {"opt", opt}, {"loader", loader}, {"steps", steps}};
      if (steps % 1000 == 0) state.save("runs/last.ckpt");
      state.resume("runs/last.ckpt");
      EXPECT_EQ(steps, 7000);
      EXPECT_THAT(net.fc2.bias.to_vector<float>(), Each(5));
    });
  std::filesystem::current_path(before);
}

TEST(DataParallelPage, Report) {
  dist::run_ranks(2, [] {
    Net net;
    dist::DistributedDataParallel ddp(net, {.check_divergence_every = 100, .check_finite = true});
    GradManager gm;
    ddp.attach(gm);
    {
      auto recording = gm.record();
      gm.backward(sum(net.fc2.bias));
    }
    const dist::ReducerStats& stats = ddp.stats();
    if (dist::get_rank() == 0)
      std::cout << "backward " << stats.backward_s << " s, of that communication that nothing hid "
                << stats.exposed_s << " s; " << stats.bytes << " bytes in " << stats.buckets << " buckets\n";
    for (const std::string& name : ddp.callback()->unused_parameters(/*backwards=*/1))
      if (dist::get_rank() == 0) std::cout << "no rank's loss depends on " << name << '\n';
    EXPECT_THAT(ddp.callback()->unused_parameters(), ElementsAre("fc1.weight", "fc1.bias", "fc2.weight"));
  });
}

}  // namespace
}  // namespace gradus
