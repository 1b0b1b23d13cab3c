// The guide to distributed training of MegEngine, section by section: launcher, data parallelism by a GradManager, data,
// rank 0 that loads and saves, several machines, model parallelism with remote_send. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using testing::ElementsAre;

constexpr int kWorld = 2;
const dist::LauncherOptions kLauncher = {.n_gpus = kWorld, .backend = "local"};

// @dist.launcher: the function runs on every rank, and its results are a list.
TEST(MegEngineGuide, Launcher) {
  const std::vector<std::string> results = dist::launch<std::string>(kLauncher, [] {
    return "rank " + std::to_string(dist::get_rank()) + " of " + std::to_string(dist::get_world_size());
  });
  EXPECT_THAT(results, ElementsAre("rank 0 of 2", "rank 1 of 2"));
}

// Two machines of one rank each: world_size, rank_start, master_ip, port.
TEST(MegEngineGuide, LauncherOfSeveralMachinesNeedsAPort) {
  EXPECT_THROW(dist::launch<int>({.n_gpus = 1, .world_size = 2, .rank_start = 1, .master_ip = "127.0.0.1"},
                                 [] { return 0; }),
               ValueError);
}

struct Net : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 4, .out = 8}}, fc2{this, "fc2", {.in = 8, .out = 3}};
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
};

struct Samples {
  Tensor x, y;
};
Samples samples(int64_t n) {
  manual_seed(5);
  const Tensor x = randn({n, 4}, {.dtype = DType::kF64});
  return {x, argmax(narrow(x, 1, 0, 3), 1)};
}

// The slice of a rank: data[rank * ceil(n / world) : (rank + 1) * ceil(n / world)].
Samples slice_of(const Samples& all, int rank, int world) {
  const int64_t n = all.x.size(0), size = (n + world - 1) / world, begin = std::min(n, rank * size);
  return {slice(all.x, 0, begin, begin + size), slice(all.y, 0, begin, begin + size)};
}

// Five steps of the guide's loop. `callbacks`: of gradients.
void train(Net& net, const Samples& s, double lr, std::vector<Callback> callbacks) {
  GradManager gm;
  gm.attach(net.parameters(), std::move(callbacks));
  optim::SGD opt(net.parameters(), {.lr = lr});
  for (int step = 0; step < 5; ++step) {
    auto recording = gm.record();
    const Tensor loss = nn::cross_entropy(net(s.x), s.y);
    gm.backward(loss);
    opt.step().clear_grad();
  }
}

// "sum" at the same learning rate is one process with a learning rate times the number of ranks; "mean" is one process.
TEST(MegEngineGuide, DataParallelism) {
  const Samples all = samples(12);
  for (const std::string reduction : {"sum", "mean"}) {
    manual_seed(1);
    Net one;
    one.to(DType::kF64);
    train(one, all, reduction == "sum" ? 0.1 * kWorld : 0.1, {});
    dist::launch<int>(kLauncher, [&] {
      manual_seed(1 + uint64_t(dist::get_rank()));
      Net net;
      net.to(DType::kF64);
      dist::bcast_list_(net.parameters());
      train(net, slice_of(all, dist::get_rank(), dist::get_world_size()), 0.1,
            {dist::make_allreduce_cb(reduction, dist::WORLD)});
      for (size_t i = 0; i < net.parameters().size(); ++i)
        EXPECT_TRUE(allclose(net.parameters()[i], one.parameters()[i], {.rtol = 0, .atol = 1e-12}))
            << reduction;
      return 0;
    });
  }
}

TEST(MegEngineGuide, SlicesAreTheWholeSet) {
  const Samples all = samples(7);
  EXPECT_EQ(slice_of(all, 0, 2).x.size(0), 4);
  EXPECT_EQ(slice_of(all, 1, 2).x.size(0), 3);
  EXPECT_EQ(slice_of(all, 3, 4).x.size(0), 1);
}

// A DataLoader gives each rank its own samples, without being told.
TEST(MegEngineGuide, LoadersShard) {
  std::mutex mutex;
  std::multiset<int64_t> seen;
  dist::launch<int>(kLauncher, [&] {
    data::DataLoader loader(data::TensorDataset(zeros({10, 1})),
                            {.batch_size = 2, .shuffle = true, .num_workers = 1});
    for (const data::Batch& b : loader) {
      const std::lock_guard lock(mutex);
      seen.insert(b.indices.begin(), b.indices.end());
    }
    return 0;
  });
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

// Rank 0 loads weights and broadcasts them. Rank 0 saves the network and the best accuracy.
TEST(MegEngineGuide, Rank0LoadsAndSaves) {
  const std::string file = testing::TempDir() + "/megengine_guide.ckpt";
  dist::launch<int>(kLauncher, [&] {
    manual_seed(1 + uint64_t(dist::get_rank()));
    Net net;
    if (dist::get_rank() == 0) {
      io::Checkpoint c;
      c.put("net", net);
      c.put("best_acc", 0.98);
      io::save_checkpoint(file, c);
    }
    dist::group_barrier();
    Net other;
    double best = 0;
    if (dist::get_rank() == 0) {
      const io::LoadedCheckpoint loaded = io::load_checkpoint(file);
      other.load_state_dict(loaded.checkpoint.tensors("net"));
      best = loaded.checkpoint.get<double>("best_acc");
    }
    dist::bcast_list_(other.parameters());
    EXPECT_EQ(dist::bcast_val(best), 0.98);
    dist::check_synchronized(other);
    return 0;
  });
  std::filesystem::remove(file);
}

// A layer on each rank. Rank 0 sends the shape by user_set, as before MegEngine 1.3; messages carry it, too.
TEST(MegEngineGuide, ModelParallelism) {
  const Samples all = samples(6);
  manual_seed(1);
  Net one;
  one.to(DType::kF64);
  train(one, all, 0.1, {});
  dist::launch<int>(kLauncher, [&] {
    manual_seed(1);
    Net net;
    net.to(DType::kF64);
    const int rank = dist::get_rank();
    nn::Linear& layer = rank == 0 ? net.fc1 : net.fc2;
    GradManager gm;
    gm.attach(layer.parameters());
    optim::SGD opt(layer.parameters(), {.lr = 0.1});
    dist::Client client = dist::get_client();
    for (int step = 0; step < 5; ++step) {
      auto recording = gm.record();
      if (rank == 0) {
        const Tensor feature = relu(layer(all.x));
        client.user_set("shape", feature.shape());
        dist::remote_send(feature, {.dest_rank = 1});
        gm.backward({});  // gm.backward([]): rank 1 sends the gradient
      } else {
        const Shape shape = client.user_get<Shape>("shape");
        const Tensor feature = dist::remote_recv({.src_rank = 0});
        EXPECT_EQ(feature.shape(), shape);
        gm.backward(nn::cross_entropy(layer(feature), all.y));
      }
      opt.step().clear_grad();
    }
    const nn::Linear& expected = rank == 0 ? one.fc1 : one.fc2;
    EXPECT_TRUE(allclose(layer.weight, expected.weight, {.rtol = 0, .atol = 1e-12}));
    EXPECT_TRUE(allclose(layer.bias, expected.bias, {.rtol = 0, .atol = 1e-12}));
    dist::group_barrier();  // not needed: a rank that ends is no error to the others
    return 0;
  });
}

// A value stays until another rank takes it by user_pop.
TEST(MegEngineGuide, ValuesByName) {
  dist::launch<int>(kLauncher, [] {
    dist::Client client = dist::get_client();
    if (dist::get_rank() == 0) {
      client.user_set("key", 7);
      EXPECT_EQ(client.user_get<int>("key"), 7);
    } else {
      EXPECT_EQ(client.user_get<int>("key"), 7);
    }
    dist::barrier();
    if (dist::get_rank() == 1) {
      EXPECT_EQ(client.user_pop<int>("key"), 7);
    }
    return 0;
  });
}

}  // namespace
}  // namespace gradus
