// Broadcasts of the state of one rank to all: tensors, modules and optimizers (bcast_list_), loaded
// checkpoints (bcast_checkpoint), and check_synchronized with its checksums. Ranks are threads; values are
// compared exactly.
#include "gradus/distributed/data_parallel/bcast_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <limits>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/bcast_checkpoint.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/distributed/data_parallel/grad_buckets.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

struct Net : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 2, .out = 3, .kernel = 3}};
  nn::BatchNorm2d bn{this, "bn", {.features = 3}};
  Tensor forward(const Tensor& x) override { return bn(conv(x)); }
};

Tensor filled(const Shape& shape, DType dtype, double value) {
  Tensor x = empty(shape, {dtype});
  raw::fill_(x, value);
  return x;
}

TEST(BcastList, EveryRankGetsTheFirstRanksValuesInItsOwnTensors) {
  run_ranks(3, [] {
    const int rank = get_rank();
    std::vector<Tensor> xs = {filled({2, 3}, DType::kF32, rank + 1),
                              filled({}, DType::kI64, rank + 2),
                              filled({0, 4}, DType::kF64, rank),
                              filled({5}, DType::kBool, rank == 0),
                              channels_last(filled({2, 3, 2, 2}, DType::kF32, rank + 3)),
                              filled({7}, DType::kBF16, rank + 4)};
    const std::vector<Tensor> same = xs;
    bcast_list_(xs);
    for (size_t i = 0; i < xs.size(); ++i) EXPECT_TRUE(xs[i].is_same(same[i]));
    EXPECT_EQ(xs[0].to_vector<float>(), std::vector<float>(6, 1));
    EXPECT_EQ(xs[1].item<int64_t>(), 2);
    EXPECT_EQ(xs[3].to_vector<int64_t>(), std::vector<int64_t>(5, 1));
    EXPECT_TRUE(xs[4].is_channels_last());
    EXPECT_EQ(xs[4].to_vector<float>(), std::vector<float>(24, 3));
    EXPECT_EQ(xs[5].to_vector<float>(), std::vector<float>(7, 4));
  });
}

TEST(BcastList, MoreThanOneMessageOfTensorsArrives) {
  run_ranks(2, [] {
    std::vector<Tensor> xs;  // 60 MB: three messages
    for (int i = 0; i < 5; ++i) xs.push_back(filled({3'000'000}, DType::kF32, get_rank() * 10 + i));
    bcast_list_(xs);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(xs[i].data<float>()[0], i);
      EXPECT_EQ(xs[i].data<float>()[2'999'999], i);
    }
  });
}

TEST(BcastList, TensorsMayLieOnFurtherDevices) {
  run_ranks(3, [] {
    const Tensor x = to(filled({2, 3}, DType::kF32, get_rank() + 1), Device{DeviceType::kCPU, 1});
    const Tensor y =
        to(filled({5}, DType::kF64, get_rank() + 1), Device{DeviceType::kCPU, int16_t(get_rank())});
    bcast_list_({x, y}, {.src = 2});
    EXPECT_EQ(x.device(), (Device{DeviceType::kCPU, 1}));
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(6, 3));
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(5, 3));
  });
}

TEST(BcastList, AnotherSourceAndASubgroup) {
  run_ranks(4, [] {
    const Group odd = new_group({1, 3});
    const Tensor x = filled({4}, DType::kF32, get_rank());
    if (odd.is_member()) bcast_list_({x}, {.group = odd, .src = 3});
    EXPECT_EQ(x.data<float>()[3], odd.is_member() ? 3 : get_rank());
  });
}

TEST(BcastList, AModuleGetsParametersAndBuffers) {
  run_ranks(2, [] {
    manual_seed(get_rank());
    Net net;
    net(randn({2, 2, 5, 5}));  // changes the running statistics
    bcast_list_(net);
    for (const Tensor& x :
         std::vector<Tensor>{net.conv.weight, net.bn.bias, net.bn.running_mean, net.bn.running_var})
      for (const Tensor& other : all_gather(x)) EXPECT_EQ(other.to_vector<float>(), x.to_vector<float>());
    EXPECT_NO_THROW(check_synchronized(net));
  });
}

TEST(BcastList, TheResultIsComparedUnlessThatIsSwitchedOff) {
  run_ranks(2, [] {
    const Tensor x = filled({4}, DType::kF32, 1);
    bcast_list_({x});
    EXPECT_EQ(last_calls().at(0), "bcast_list_()");  // the comparison of checksums
    bcast_list_({x}, {.verify = false});
    EXPECT_THAT(last_calls().at(0), HasSubstr("broadcast(u8"));
  });
}

TEST(BcastList, AnOptimizerThatHasNotSteppedTakesOverStateAndOptions) {
  run_ranks(2, [] {
    const bool first = get_rank() == 0;
    const Tensor p = filled({3}, DType::kF32, 1);
    optim::SGD opt({p}, {.lr = first ? 0.5 : 0.1, .momentum = 0.9});
    GradManager gm;
    gm.attach(p);
    const auto step = [&] {
      auto recording = gm.record();
      gm.backward(sum(p * p));
      opt.step().clear_grad();
    };
    if (first) step(), step();
    bcast_list_({p});
    bcast_list_(opt);
    EXPECT_EQ(opt.lr(), 0.5);
    step();
    check_synchronized({{"p", p}, {"momentum", opt.state_dict().tensors.at(0).second}});
  });
}

TEST(BcastList, TensorsThatDoNotFitAreNamedOnAllRanksBeforeAnythingIsChanged) {
  const auto errors = errors_of(3, [] {
    const Tensor a = filled({2}, DType::kF32, get_rank());
    const Tensor b = get_rank() == 2 ? filled({2, 3}, DType::kF32, 9) : filled({3, 2}, DType::kF32, 9);
    try {
      bcast_list_(nn::StateDict{{"conv.weight", a}, {"fc.weight", b}});
    } catch (const MismatchError& error) {
      EXPECT_EQ(error.rank(), 2);
      EXPECT_EQ(a.data<float>()[0], get_rank());
      throw;
    }
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("fc.weight"), HasSubstr("rank 2"), HasSubstr("[2,3]"))));
}

TEST(BcastList, AListThatIsShorterOnOneRankIsAMismatch) {
  const auto errors =
      errors_of(2, [] { bcast_list_(std::vector<Tensor>(get_rank() + 1, filled({2}, DType::kF32, 0))); });
  EXPECT_THAT(errors, Each(HasSubstr("rank 0 has no more, rank 1 has tensor 1 f32[2]")));
}

TEST(BcastList, ATensorThatARecordingFollowsIsRefused) {
  Tensor p = filled({3}, DType::kF32, 1);
  GradManager gm;
  gm.attach(p);
  auto recording = gm.record();
  EXPECT_THROW(bcast_list_({p}), StateError);
}

TEST(CheckSynchronized, NamesTheFirstTensorThatDiffersAndTheRanks) {
  const auto errors = errors_of(4, [] {
    manual_seed(1);
    Net net;
    if (get_rank() % 2 == 1) net.bn.bias.mutable_data<float>()[1] = 1e-30f;
    check_synchronized(net);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("bn.bias"), HasSubstr("ranks 1, 3"))));
}

TEST(Checksum, SeesEveryBitPlaceShapeAndDtype) {
  const Tensor x = filled({4, 6}, DType::kF32, 1);
  const int64_t sum = internal::checksum_of(x);
  EXPECT_EQ(sum, internal::checksum_of(filled({4, 6}, DType::kF32, 1)));
  EXPECT_NE(sum, internal::checksum_of(filled({6, 4}, DType::kF32, 1)));
  EXPECT_NE(internal::checksum_of(filled({2}, DType::kF32, 0)),
            internal::checksum_of(filled({2}, DType::kF32, -0.0)));
  Tensor y = filled({4, 6}, DType::kF32, 1), z = filled({4, 6}, DType::kF32, 1);
  y.mutable_data<float>()[3] = 2, z.mutable_data<float>()[4] = 2;
  EXPECT_NE(internal::checksum_of(y), internal::checksum_of(z));
  EXPECT_EQ(internal::checksum_of(transpose(transpose(y, 0, 1), 0, 1)), internal::checksum_of(y));
  EXPECT_NE(internal::checksum_of(transpose(y, 0, 1)), internal::checksum_of(y));
  const Tensor image = randn({2, 3, 4, 5});
  EXPECT_EQ(internal::checksum_of(channels_last(image)), internal::checksum_of(image));
  EXPECT_EQ(internal::checksum_of(to(image, Device{DeviceType::kCPU, 1})), internal::checksum_of(image));
}

TEST(FirstNotFinite, FindsNanAndInfinityInEveryFloatingDtype) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    Tensor x = filled({10'000}, dtype, 1);
    EXPECT_EQ(internal::first_not_finite(x), -1);
    for (const double bad :
         {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
          std::numeric_limits<double>::quiet_NaN()}) {
      x[9'000] = bad;
      EXPECT_EQ(internal::first_not_finite(x), 9'000) << dtype;
    }
    for (const int64_t at : {9'999, 8'192, 8'191, 4'096, 4'095, 1, 0}) {
      x[at] = -std::numeric_limits<double>::infinity();
      EXPECT_EQ(internal::first_not_finite(x), at == 9'999 ? 9'000 : at) << dtype;
    }
    Tensor last = filled({4'097}, dtype, 1);
    last[4'096] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(internal::first_not_finite(last), 4'096);
    last = filled({4'096}, dtype, 1);
    last[4'095] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(internal::first_not_finite(last), 4'095);
  }
  EXPECT_EQ(internal::first_not_finite(filled({3}, DType::kI64, -1)), -1);
}

// ---- checkpoints ----

io::LoadedCheckpoint everything() {
  io::Checkpoint c;
  c.put("model.weight", ones({2, 3}));
  c.put("model.half", to(ones({4}), DType::kBF16));
  c.put("model.steps", scalar(7, {.dtype = DType::kI64}));
  c.put("model.none", ones({0, 2}));
  c.put("epoch", -3);
  c.put("seed", std::numeric_limits<uint64_t>::max());
  c.put("lr", 0.1);
  c.put("done", true);
  c.put("note", std::string("a\0b\xff", 4));
  return {c, "run.ckpt.previous", "the newest is damaged"};
}

TEST(BcastCheckpoint, EveryRankGetsWhatOneRankLoads) {
  std::atomic<int> loads = 0;
  run_ranks(3, [&] {
    const io::LoadedCheckpoint loaded = bcast_checkpoint(
        [&] {
          ++loads;
          EXPECT_EQ(get_rank(), 2);
          return everything();
        },
        {.src = 2});
    const io::Checkpoint& c = loaded.checkpoint;
    EXPECT_EQ(c.names(), everything().checkpoint.names());
    EXPECT_EQ(c.tensor("model.weight").to_vector<float>(), std::vector<float>(6, 1));
    EXPECT_EQ(c.tensor("model.half").dtype(), DType::kBF16);
    EXPECT_EQ(c.tensor("model.half").to_vector<float>(), std::vector<float>(4, 1));
    EXPECT_EQ(c.tensor("model.steps").shape(), Shape());
    EXPECT_EQ(c.tensor("model.steps").item<int64_t>(), 7);
    EXPECT_EQ(c.tensor("model.none").shape(), Shape({0, 2}));
    EXPECT_EQ(c.get<int>("epoch"), -3);
    EXPECT_EQ(c.get<uint64_t>("seed"), std::numeric_limits<uint64_t>::max());
    EXPECT_EQ(c.get<double>("lr"), 0.1);
    EXPECT_EQ(c.get<bool>("done"), true);
    EXPECT_EQ(c.get<std::string>("note"), std::string("a\0b\xff", 4));
    EXPECT_EQ(loaded.path, "run.ckpt.previous");
    EXPECT_EQ(loaded.warning, "the newest is damaged");
  });
  EXPECT_EQ(loads, 1);
}

TEST(BcastCheckpoint, AFileThatOnlyTheFirstRankSeesIsReadByItAlone) {
  const auto path = std::filesystem::path(testing::TempDir()) / "bcast_checkpoint_test.ckpt";
  io::save_checkpoint(path, everything().checkpoint);
  run_ranks(2, [&] {
    const auto mine = get_rank() == 0 ? path : std::filesystem::path("/nowhere");
    const io::LoadedCheckpoint loaded = bcast_checkpoint(mine);
    EXPECT_EQ(loaded.path, path.string());
    EXPECT_EQ(loaded.checkpoint.tensor("model.weight").to_vector<float>(), std::vector<float>(6, 1));
  });
  std::filesystem::remove(path);
}

TEST(BcastCheckpoint, TheErrorOfTheRankThatLoadsIsThatOfAllAndTheGroupGoesOn) {
  run_ranks(3, [&] {
    std::string text;
    try {
      bcast_checkpoint("/nowhere/run.ckpt");
    } catch (const FileError& error) {
      text = error.what();
    }
    EXPECT_THAT(text, AllOf(HasSubstr("[load_checkpoint]"), HasSubstr("/nowhere/run.ckpt")));
    const Tensor x = ones({1});
    all_reduce(x);
    EXPECT_EQ(x.item<float>(), 3);
  });
}

TEST(BcastCheckpoint, AnErrorOfAnotherKindNamesTheRank) {
  run_ranks(2, [&] {
    const auto load = []() -> io::LoadedCheckpoint {
      throw std::out_of_range("no such file in the archive");
    };
    if (get_rank() == 1) {
      EXPECT_THROW(bcast_checkpoint(load, {.src = 1}), std::out_of_range);
      return;
    }
    try {
      bcast_checkpoint(load, {.src = 1});
      ADD_FAILURE();
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 failed to load: no such file in the archive"));
    }
  });
}

TEST(BcastCheckpoint, AloneItOnlyLoads) {
  EXPECT_EQ(bcast_checkpoint(everything).checkpoint.get<int>("epoch"), -3);
  EXPECT_THROW(bcast_checkpoint("/nowhere/run.ckpt"), FileError);
}

}  // namespace
}  // namespace gradus::dist
