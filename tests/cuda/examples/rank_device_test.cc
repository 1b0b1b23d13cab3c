// dist::get_device() and training::run() of ranks (threads) that share two emulated GPUs.
#include <gtest/gtest.h>

#include <vector>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/train/program.h"

namespace gradus {
namespace {

Device expected_device(int local_rank) { return {DeviceType::kCUDA, int16_t(local_rank % 2)}; }

TEST(DeviceOfARank, FollowsTheRankOfTheHost) {
  ASSERT_EQ(cuda_device_count(), 2);
  EXPECT_EQ(dist::get_device(), expected_device(0));  // without a job
  dist::run_ranks(3, [] { EXPECT_EQ(dist::get_device(), expected_device(dist::get_rank())); });
  dist::run_ranks(6, [] { EXPECT_EQ(dist::get_device(), expected_device(dist::get_rank() % 3)); },
                  {.hosts = 2});
}

TEST(DeviceOfARank, IsSetByRunForTheTextCudaAlone) {
  for (const bool by_rank : {true, false})
    dist::run_ranks(2, [&] {
      training::RunOptions options;
      options.device = "cuda:0", options.devices = {"cuda:0"};
      options.device_by_rank = by_rank, options.cudnn_benchmark = false;
      const Device expected = expected_device(by_rank ? dist::get_rank() : 0);
      bool ran = false;
      training::run("program", options, [&] {
        EXPECT_EQ(*options.device, expected);
        EXPECT_EQ(options.devices, std::vector<Device>{expected});
        ran = true;
      });
      EXPECT_TRUE(ran);
    });
}

}  // namespace
}  // namespace gradus
