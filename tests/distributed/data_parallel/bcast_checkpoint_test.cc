#include "gradus/distributed/data_parallel/bcast_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <limits>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
