// A process that a launcher has started as a rank (RANK and WORLD_SIZE are set), but that has not joined the
// job: the first collective operation is an error, and operations of one process work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "gradus/autograd/ops/reduce.h"
#include "gradus/data/dataloader.h"
#include "gradus/data/dataset.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::StartsWith;

// As gradus-run and torchrun do.
const bool is_started_as_a_rank = setenv("RANK", "1", 1) == 0 && setenv("WORLD_SIZE", "4", 1) == 0;

template <class F> void expect_refused(const std::string& op, F&& f) {
  EXPECT_THAT(error_of<StateError>(f),
              StartsWith("[" + op +
                         "] this process is rank 1 of 4, as RANK and WORLD_SIZE say, but it is in "
                         "no job: call dist::launcher or dist::init_process_group first"))
      << op;
}

const data::TensorDataset& samples() {
  static const data::TensorDataset samples({ones({8, 2})});
  return samples;
}

TEST(Unjoined, CollectivesAreAnError) {
  ASSERT_TRUE(is_started_as_a_rank);
  Tensor x = ones({2});
  expect_refused("all_reduce", [&] { all_reduce(x); });
  expect_refused("broadcast", [&] { broadcast(x, {.src = 1}); });
  expect_refused("barrier", [] { barrier(); });
  expect_refused("all_gather_object", [] { all_gather_object("x"); });
  expect_refused("group_barrier", [] { group_barrier(); });
  expect_refused("new_group", [] { new_group({0}); });
  expect_refused("all_reduce", [&] { functional::all_reduce(x); });
  expect_refused("send", [&] { send(x, {.dst = 1}); });
}

TEST(Unjoined, WrappersAreAnError) {
  nn::Linear net({.in = 2, .out = 2});
  expect_refused("DistributedDataParallel", [&] { DistributedDataParallel ddp(net); });
  expect_refused("make_allreduce_cb", [] { make_allreduce_cb("mean"); });
  expect_refused("convert_sync_batchnorm", [&] { convert_sync_batchnorm(net); });
}

TEST(Unjoined, LoadersThatShareAnEpochAreAnErrorAndOthersAreNot) {
  expect_refused("DataLoader", [] { data::DataLoader(samples(), {.batch_size = 2}); });
  expect_refused("DistributedSampler", [] { data::DistributedSampler(8); });
  EXPECT_EQ(data::DataLoader(samples(), {.batch_size = 2, .world_size = 1}).size(), 4);
  EXPECT_EQ(data::DistributedSampler(8, {.num_replicas = 2, .rank = 0}).size(), 8);
}

TEST(Unjoined, RanksThatAreThreadsHaveAJob) {
  run_ranks(2, [] {
    Tensor x = ones({1});
    all_reduce(x);
    EXPECT_EQ(x.item<float>(), 2);
    EXPECT_EQ(data::DataLoader(samples(), {.batch_size = 2}).size(), 2);
  });
}

TEST(Unjoined, ATrainingInOneProcessNeedsNoJob) {
  nn::Linear net({.in = 2, .out = 1});
  GradManager gm;
  auto recording = gm.attach(net.parameters()).record();
  gm.backward(sum(net(ones({1, 2}))));
  EXPECT_TRUE(net.parameters()[0].grad().defined());
}

}  // namespace
}  // namespace gradus::dist
