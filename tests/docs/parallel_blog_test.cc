// The way of many introductions to PyTorch: DataParallel, DistributedDataParallel by spawn, a model on two devices, a
// pipeline of splits. Values and shapes are those that these texts print. Ranks are threads, devices those of the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

const Device kFirst = Device::parse("cpu:1"), kSecond = Device::parse("cpu:2");

// ---- DataParallel: "In Model: input size [15, 5] output size [15, 2]" ----

std::mutex mutex;
std::vector<std::pair<Shape, Shape>> in_model;  // input and output sizes of each replica

struct Model : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 5, .out = 2}};
  Tensor forward(const Tensor& input) override {
    const Tensor output = fc(input);
    const std::lock_guard lock(mutex);
    in_model.emplace_back(input.shape(), output.shape());
    return output;
  }
};

TEST(ParallelBlog, DataParallelSplitsTheBatch) {
  dist::DataParallel<Model> model([] { return std::make_unique<Model>(); },
                                  {.device_ids = {kFirst, kSecond}});
  data::DataLoader rand_loader(data::TensorDataset(randn({100, 5})), {.batch_size = 30, .shuffle = true});
  std::vector<int64_t> outside;
  for (const data::Batch& b : rand_loader) {
    const Tensor output = model(b.input);
    EXPECT_EQ(output.shape(), Shape({b.input.size(0), 2}));
    outside.push_back(output.size(0));
    const int64_t half = b.input.size(0) / 2;
    EXPECT_THAT(std::exchange(in_model, {}), UnorderedElementsAre(Pair(Shape({half, 5}), Shape({half, 2})),
                                                                  Pair(Shape({half, 5}), Shape({half, 2}))));
  }
  EXPECT_THAT(outside, ElementsAre(30, 30, 30, 10));
}

// ---- DistributedDataParallel: mp.spawn(demo_basic, args=(world_size,), nprocs=world_size, join=True) ----

struct ToyModel : nn::Layer {
  nn::Linear net1{this, "net1", {.in = 10, .out = 10}};
  nn::Linear net2{this, "net2", {.in = 10, .out = 5}};
  Tensor forward(const Tensor& x) override { return net2(relu(net1(x))); }
};

void demo_basic(int rank, int world_size) {
  EXPECT_EQ(rank, dist::get_rank());
  EXPECT_EQ(world_size, dist::get_world_size());
  manual_seed(1 + uint64_t(rank));
  ToyModel model;
  dist::DistributedDataParallel ddp_model(model);
  GradManager gm;
  ddp_model.attach(gm);
  optim::SGD optimizer(ddp_model.parameters(), {.lr = 0.001});
  auto recording = gm.record();
  const Tensor outputs = ddp_model(randn({20, 10})), labels = randn({20, 5});
  gm.backward(nn::mse_loss(outputs, labels));
  optimizer.step();
  dist::check_synchronized(model);
  dist::destroy_process_group();
}

TEST(ParallelBlog, Spawn) {
  constexpr int kWorldSize = 2;
  dist::spawn({.nprocs = kWorldSize, .backend = "local"}, demo_basic, kWorldSize);
}

TEST(ParallelBlog, SpawnNamesTheRankThatThrows) {
  try {
    dist::spawn({.nprocs = 2, .backend = "local"}, [](int rank) {
      if (rank == 1) throw ValueError("demo", "no luck");
    });
    ADD_FAILURE() << "no error";
  } catch (const dist::ProcessRaisedError& e) {
    EXPECT_EQ(e.rank(), 1);
  }
}

// MNIST's normalization, a DistributedSampler and a loader with workers; the loss falls, ranks stay equal.
TEST(ParallelBlog, DistributedTrainingOfDigits) {
  const data::Transform transform =
      data::Compose({data::ToTensor(), data::Normalize({.mean = {0.1307}, .std = {0.3081}})});
  dist::run_ranks(2, [&] {
    const data::GeneratedDigits train({.size = 256, .transform = transform});
    const auto sampler = std::make_shared<data::DistributedSampler>(train.size());
    data::DataLoader loader(train, {.batch_size = 16, .num_workers = 1, .sampler = sampler});
    manual_seed(1);
    nn::Sequential net;
    net.add<nn::Flatten>({});
    net.add<nn::Linear>({.in = 784, .out = 10});
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    optim::SGD opt(net.parameters(), {.lr = 0.02});
    std::vector<double> losses;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      sampler->set_epoch(epoch);
      double sum = 0;
      for (const data::Batch& b : loader) {
        auto recording = gm.record();
        const Tensor loss = nn::cross_entropy(ddp(b.input), b.target);
        gm.backward(loss);
        opt.step().clear_grad();
        sum += loss.item<double>();
      }
      losses.push_back(sum);
    }
    EXPECT_LT(losses[2], 0.8 * losses[0]);
    dist::check_synchronized(net);
  });
}

// ---- model parallelism, and its pipeline ----

struct ModelParallelToyModel : ToyModel {
  explicit ModelParallelToyModel(int64_t split_size) : split_size(split_size) {
    net1.to(kFirst);
    net2.to(kSecond);
  }
  int64_t split_size;
  Tensor forward(const Tensor& x) override {
    std::vector<Tensor> results;
    for (const Tensor& part : split(x, split_size))
      results.push_back(net2(to(relu(net1(to(part, kFirst))), kSecond)));
    return cat(results);
  }
};

// Gradients of a batch of 120: on one device, on two, and on two in splits of 20.
TEST(ParallelBlog, ModelAndPipelineParallelism) {
  manual_seed(1);
  ToyModel one;
  one.to(DType::kF64);
  const Tensor x = randn({120, 10}, {.dtype = DType::kF64}), y = randn({120, 5}, {.dtype = DType::kF64});
  const auto gradients = [&](nn::Layer& net) {
    GradManager gm;
    gm.attach(net.parameters());
    auto recording = gm.record();
    const Tensor outputs = net(x);
    EXPECT_EQ(outputs.shape(), Shape({120, 5}));
    gm.backward(nn::mse_loss(outputs, to(y, outputs.device())));
    std::vector<Tensor> all;
    for (const Tensor& p : net.parameters()) all.push_back(to(p.grad(), kCPU));
    return all;
  };
  const std::vector<Tensor> expected = gradients(one);
  for (const int64_t split_size : {120, 20}) {
    ModelParallelToyModel two(split_size);
    two.to(DType::kF64);
    nn::copy_state_(one, two);
    EXPECT_EQ(two.net1.weight.device(), kFirst);
    EXPECT_EQ(two.net2.weight.device(), kSecond);
    const std::vector<Tensor> got = gradients(two);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(allclose(got[i], expected[i], {.rtol = 0, .atol = 1e-12})) << split_size;
  }
}

}  // namespace
}  // namespace gradus
