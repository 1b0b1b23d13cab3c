// The guide to torch.distributed, section by section: collectives with the values that PyTorch's documentation prints,
// objects, batch norm over ranks, samplers, GANs, checkpoints. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> values(const Tensor& x) { return x.to_vector<int64_t>(); }
std::vector<std::vector<int64_t>> values(const std::vector<Tensor>& xs) {
  std::vector<std::vector<int64_t>> all;
  for (const Tensor& x : xs) all.push_back(values(x));
  return all;
}

TEST(PyTorchGuide, RanksKnowTheirPlaces) {
  dist::run_ranks(4, [] {
    EXPECT_EQ(dist::get_world_size(), 4);
    EXPECT_EQ(dist::get_local_world_size(), 4);
    EXPECT_EQ(dist::get_local_rank(), dist::get_rank());
    EXPECT_EQ(dist::get_node_rank(), 0);  // GROUP_RANK
    EXPECT_TRUE(dist::is_initialized());
  });
}

// torch.arange(2) + 1 + 2 * rank: [1, 2] on rank 0, [3, 4] on rank 1.
TEST(PyTorchGuide, Collectives) {
  dist::run_ranks(2, [] {
    const int rank = dist::get_rank();
    const auto tensor_of_rank = [&] { return arange(2) + 1 + 2 * rank; };
    const auto ones_of = [](int64_t v) { return full({2}, v, {.dtype = DType::kI64}); };

    // scatter: [1, 1] to rank 0, [5, 5] to rank 1
    std::vector<Tensor> inputs;
    if (rank == 0) inputs = {ones_of(1), ones_of(5)};
    Tensor output = ones_of(0);
    dist::scatter(output, inputs, {.src = 0});
    EXPECT_THAT(values(output), ElementsAre(rank == 0 ? 1 : 5, rank == 0 ? 1 : 5));

    // reduce: [4, 6] on rank 0
    Tensor x = tensor_of_rank();
    dist::reduce(x, {.dst = 0, .op = dist::ReduceOp::kSum});
    if (rank == 0) {
      EXPECT_THAT(values(x), ElementsAre(4, 6));
    }
    // gather: the list on rank 0, nothing elsewhere
    const std::vector<Tensor> gathered = dist::gather(tensor_of_rank(), {.dst = 0});
    if (rank == 0)
      EXPECT_THAT(values(gathered), ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
    else
      EXPECT_TRUE(gathered.empty());

    x = tensor_of_rank();
    dist::all_reduce(x);
    EXPECT_THAT(values(x), ElementsAre(4, 6));

    x = tensor_of_rank();
    dist::broadcast(x, {.src = 1});
    EXPECT_THAT(values(x), ElementsAre(3, 4));

    std::vector<Tensor> tensor_list = {ones_of(0), ones_of(0)};
    dist::all_gather(tensor_list, tensor_of_rank());
    EXPECT_THAT(values(tensor_list), ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
    dist::barrier();
  });
}

TEST(PyTorchGuide, Reductions) {
  dist::run_ranks(2, [] {
    using enum dist::ReduceOp;
    const std::vector<std::pair<dist::ReduceOp, std::vector<int64_t>>> expected = {
        {kSum, {4, 6}}, {kProduct, {3, 8}}, {kMin, {1, 2}}, {kMax, {3, 4}}, {kAvg, {2, 3}}};
    for (const auto& [op, sum] : expected) {
      const Tensor x = arange(2) + 1 + 2 * dist::get_rank();
      dist::all_reduce(x, {.op = op});
      EXPECT_EQ(values(x), sum) << name_of(op);
    }
  });
}

TEST(PyTorchGuide, TensorsAreContiguous) {
  const Tensor x = arange(6);
  const std::string error = error_of([&] { dist::all_reduce(t(reshape(x, {2, 3}))); });
  EXPECT_THAT(error, HasSubstr("contiguous"));
}

// gather_objects = ["foo", 12, {1: 2}], one for each rank.
TEST(PyTorchGuide, Objects) {
  dist::run_ranks(3, [] {
    using Json = nlohmann::json;
    const std::vector<std::string> objects = {Json("foo").dump(), Json(12).dump(), Json{{"1", 2}}.dump()};
    const std::string& mine = objects[size_t(dist::get_rank())];
    EXPECT_EQ(dist::all_gather_object(mine), objects);
    EXPECT_EQ(dist::gather_object(mine, {.dst = 0}),
              dist::get_rank() == 0 ? objects : std::vector<std::string>());
    EXPECT_EQ(dist::broadcast_object(dist::get_rank() == 0 ? objects : std::vector<std::string>()), objects);
    EXPECT_EQ(dist::scatter_object(dist::get_rank() == 0 ? objects : std::vector<std::string>()), mine);
    // Values of one type need no text.
    const std::map<int, int> map = {{dist::get_rank(), 2}};
    EXPECT_EQ(dist::all_gather_object(map)[1].at(1), 2);
  });
}

struct Net : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 2, .out = 3}};
  nn::BatchNorm1d bn{this, "bn", {.features = 3}};
  nn::Linear unused{this, "unused", {.in = 2, .out = 3}};
  Tensor forward(const Tensor& x) override { return bn(fc(x)); }
};

// Two ranks with a half of the batch give what one process gives with all of it. The layer "unused" needs no
// find_unused_parameters.
TEST(PyTorchGuide, SyncBatchNormAndUnusedParameters) {
  manual_seed(3);
  const Tensor x = randn({8, 2}, {.dtype = DType::kF64});
  const auto step = [&](Net& net, GradManager& gm, const Tensor& samples) {
    auto recording = gm.record();
    const Tensor y = net(samples);
    gm.backward(mean(square(y - samples[{Slice(), Slice(0, 1)}])));
  };
  manual_seed(1);
  Net one;
  one.to(DType::kF64);
  GradManager gm;
  gm.attach(one.parameters());
  step(one, gm, x);
  dist::run_ranks(2, [&] {
    manual_seed(1 + uint64_t(dist::get_rank()));
    Net net;
    net.to(DType::kF64);
    EXPECT_EQ(dist::convert_sync_batchnorm(net), 1);
    dist::DistributedDataParallel ddp(net);
    GradManager local;
    ddp.attach(local);
    step(net, local, slice(x, 0, 4 * dist::get_rank(), 4 * dist::get_rank() + 4));
    EXPECT_TRUE(allclose(net.fc.weight.grad(), one.fc.weight.grad(), {.rtol = 0, .atol = 1e-12}));
    EXPECT_TRUE(allclose(net.bn.weight.grad(), one.bn.weight.grad(), {.rtol = 0, .atol = 1e-12}));
    EXPECT_TRUE(allclose(net.bn.running_mean, one.bn.running_mean, {.rtol = 0, .atol = 1e-12}));
    EXPECT_FALSE(net.unused.weight.grad().defined());
  });
}

// 10 samples on 4 ranks: 3 for each, interleaved, the first two repeated.
TEST(PyTorchGuide, SamplersAndEpochs) {
  dist::run_ranks(4, [] {
    const data::DistributedSampler plain(10, {.shuffle = false});
    const std::vector<std::vector<int64_t>> all = dist::all_gather_object(plain.indices());
    EXPECT_THAT(all, ElementsAre(ElementsAre(0, 4, 8), ElementsAre(1, 5, 9), ElementsAre(2, 6, 0),
                                 ElementsAre(3, 7, 1)));

    data::DistributedSampler sampler(10, {.shuffle = true, .seed = 0});
    const std::vector<int64_t> first = sampler.order(0);
    sampler.set_epoch(0);
    EXPECT_EQ(sampler.order(7), first);  // without set_epoch PyTorch has this order in all epochs
    sampler.set_epoch(1);
    EXPECT_NE(sampler.order(7), first);
  });
}

// A GAN's discriminator gets real and generated samples in one forward, as one batch.
TEST(PyTorchGuide, OneForwardOfTheDiscriminator) {
  dist::run_ranks(2, [] {
    manual_seed(1 + uint64_t(dist::get_rank()));
    nn::Linear gen({.in = 2, .out = 2}), disc({.in = 2, .out = 1});
    dist::DistributedDataParallel ddp_g(gen), ddp_d(disc);
    GradManager gm;
    ddp_d.attach(gm);
    const Tensor real = randn({4, 2}), fake = ddp_g(randn({4, 2}));
    auto recording = gm.record();
    const std::vector<Tensor> scores = chunk(ddp_d(cat({real, fake})), 2);
    gm.backward(gan::vanilla_d(scores[0], scores[1]));
    const Tensor once = clone(disc.weight.grad());
    recording = gm.record();
    gm.backward(gan::vanilla_d(ddp_d(real), ddp_d(fake)));  // two forwards are the same, without batch norm
    EXPECT_TRUE(allclose(disc.weight.grad(), once * 2));    // gradients add up
  });
}

// Rank 0 saves the module, all ranks load it.
TEST(PyTorchGuide, Checkpoints) {
  const std::string file = testing::TempDir() + "/pytorch_guide.safetensors";
  dist::run_ranks(2, [&] {
    manual_seed(1 + uint64_t(dist::get_rank()));
    nn::Linear net({.in = 2, .out = 2});
    dist::DistributedDataParallel ddp(net);
    auto save = dist::master_only([&] { io::save_weights(ddp.module(), file); });
    save();
    dist::barrier();  // the others wait until it is written
    nn::Linear other({.in = 2, .out = 2});
    io::load_weights(other, file);
    EXPECT_TRUE(equal(other.weight, net.weight));
  });
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace gradus
