// An exception of one rank reaches the others at once, wherever it is thrown. No destructor that it passes
// waits for the other ranks.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/data_parallel/throwing_training.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Long after all of it should be over.
constexpr RunRanksOptions kLong{.timeout = Milliseconds(60'000)};

struct Net : nn::Layer {
  nn::Linear first{this, "first", {.in = 3, .out = 4}};
  nn::BatchNorm1d norm{this, "norm", {.features = 4}};
  Tensor forward(const Tensor& x) override { return norm(first(x)); }
};

TEST(Exceptions, OfAForwardReachRanksThatWaitInSyncBatchNorm) {
  const Clock::time_point begin = Clock::now();
  const auto errors = errors_of(
      2,
      [] {
        Net net;
        convert_sync_batchnorm(net);
        DistributedDataParallel ddp(net);
        GradManager gm;
        ddp.attach(gm);
        for (int step = 0; step < 4; ++step) {
          auto recording = gm.record();
          gm.backward(sum(ddp(ones({2, step == 2 && get_rank() == 1 ? 4 : 3}))));
        }
      },
      kLong);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(errors[0], HasSubstr("rank 1 failed: ShapeError: in first: [linear] weight takes 3"));
}

// Calls that nobody has waited for outlive their group; a rank that returns lets them end.
TEST(Exceptions, CallsOutliveTheirGroup) {
  run_ranks(
      3,
      [] {
        Tensor x = full({1000}, get_rank());
        Work work;
        {
          const Group own = world().duplicate();
          if (get_rank() == 2) std::this_thread::sleep_for(Milliseconds(50));
          work = all_reduce(x, {.group = own, .async_op = true});
        }
        work.wait();
        EXPECT_EQ(x.to_vector<float>()[0], 3);
        const Group own = world().duplicate();
        if (get_rank() == 0) std::this_thread::sleep_for(Milliseconds(50));
        all_reduce(x, {.group = own, .async_op = true});
      },
      kLong);
}

class ThrowingTrainings : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Random, ThrowingTrainings, testing::Values(2, 3, 4));

TEST_P(ThrowingTrainings, AreErrorsThatNameTheRankTheTypeAndTheText) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const ThrowingTraining training = ThrowingTraining::random(seed, GetParam());
    const int hosts = seed % 3 == 2 ? 2 : 1;
    std::vector<std::string> texts(GetParam());
    std::vector<int> named(GetParam(), -1);
    std::atomic<Clock::time_point> fault{Clock::now()};
    try {
      run_ranks(GetParam(),
                [&] {
                  try {
                    training.run([&] { fault = Clock::now(); });
                  } catch (const DistributedError& error) {
                    texts[get_rank()] = error.what();
                    named[get_rank()] = error.rank();
                    throw;
                  } catch (const Error& error) {
                    if (get_rank() != training.victim) texts[get_rank()] = error.what();
                    throw;
                  }
                },
                {.timeout = kLong.timeout, .messages_only = seed % 3 == 1, .hosts = hosts});
    } catch (...) {
    }
    EXPECT_LT(Clock::now() - fault.load(), std::chrono::seconds(10)) << training.text();
    for (int rank = 0; rank < GetParam(); ++rank) {
      if (rank == training.victim) continue;
      EXPECT_EQ(training.judge(named[rank], texts[rank]), "")
          << "seed " << seed << ": " << training.text() << "\nrank " << rank << ": " << texts[rank];
    }
  }
}

}  // namespace
}  // namespace gradus::dist
