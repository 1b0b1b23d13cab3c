// run_ranks, which runs a function on threads as the ranks of a job: failures, early ends, timeouts,
// contexts, nesting.
#include "gradus/distributed/group/run_ranks.h"

#include <gmock/gmock.h>

#include <atomic>
#include <set>
#include <thread>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct OwnError : std::runtime_error {
  using runtime_error::runtime_error;
};

TEST(RunRanks, ThrowsWhatTheFirstFailingRankThrew) {
  for (const bool messages_only : {false, true})
    EXPECT_THROW(run_ranks(4,
                           [] {
                             if (get_rank() == 2) throw OwnError("disk full");
                             for (;;) barrier();
                           },
                           {.messages_only = messages_only}),
                 OwnError);
}

TEST(RunRanks, TellsOtherRanksWhoFailedAndWhy) {
  const auto errors = errors_of(3, [] {
    if (get_rank() == 2) throw ShapeError("matmul", "inner sizes differ");
    const Tensor x = empty({3});
    for (;;) all_reduce(x);
  });
  EXPECT_THAT(errors[0], HasSubstr("[all_reduce] rank 2 failed: ShapeError: [matmul] inner sizes differ"));
  EXPECT_THAT(errors[1], HasSubstr("[all_reduce] rank 2 failed: ShapeError: [matmul] inner sizes differ"));
}

TEST(RunRanks, FailsWhateverIsThrown) {
  EXPECT_THROW(run_ranks(2, [] { get_rank() == 1 ? throw 42 : barrier(); }), int);
}

TEST(RunRanks, ARankThatReturnsEarlyHasLeft) {
  for (int hosts : {1, 2}) {
    const auto errors = errors_of(3,
                                  [] {
                                    if (get_rank() == 2) return;
                                    barrier();
                                  },
                                  {.timeout = Milliseconds(20'000), .hosts = hosts});
    EXPECT_THAT(errors[0], HasSubstr("[barrier] rank 2 has left the job"));
    EXPECT_THAT(errors[1], HasSubstr("[barrier] rank 2 has left the job"));
    EXPECT_EQ(errors[2], "");
  }
}

TEST(RunRanks, ARankThatDoesNotComeIsATimeoutThatNamesIt) {
  const auto errors = errors_of(3,
                                [] {
                                  if (get_rank() == 1) {
                                    std::this_thread::sleep_for(Milliseconds(600));
                                    barrier();
                                  } else {
                                    all_reduce(empty({3}));
                                  }
                                },
                                {.timeout = Milliseconds(150)});
  for (const std::string& error : errors)
    EXPECT_THAT(error,
                AllOf(HasSubstr("rank 1 did not come to all_reduce #1 of group 'world' within 150 ms")));
  EXPECT_THAT(errors[0],
              HasSubstr("last collectives of rank 0, newest first:\n  #1 all_reduce(f32[3], sum) in group "
                        "'world'"));
}

TEST(RunRanks, TheLogOfATimeoutFoldsEqualCalls) {
  const auto errors = errors_of(2, [] {
    for (int i = 0; i < 300; ++i) all_reduce(empty({3}));
    for (int i = 0; i < 5; ++i) barrier();
    if (get_rank() == 0) all_reduce(empty({7}), {.timeout = Milliseconds(100)});
    if (get_rank() == 1) recv(empty({1}));
  });
  EXPECT_THAT(errors[0],
              HasSubstr("\n  #306 all_reduce(f32[7], sum) in group 'world'"
                        "\n  #305 barrier() in group 'world' and 4 like it before"
                        "\n  #300 all_reduce(f32[3], sum) in group 'world' and 249 like it before"));
}

TEST(RunRanks, WaitsForCallsThatAreUnderWay) {
  Tensor xs[2];
  run_ranks(2, [&] {
    xs[get_rank()] = tensor(std::vector<float>(100'000, 1), {100'000});
    for (int i = 0; i < 5; ++i) all_reduce(xs[get_rank()], {.async_op = true});  // nobody waits
  });
  EXPECT_EQ(xs[0].to_vector<float>()[99'999], 32);
}

TEST(RunRanks, GivesEveryRankAContextOfItsOwn) {
  manual_seed(7);
  const Tensor w = scalar(1);
  GradManager gm;
  auto recording = gm.attach(w).record();
  std::vector<double> draws(3);
  run_ranks(3, [&] {
    EXPECT_TRUE(Context::current().recordings.empty());
    draws[get_rank()] = rand({1}).item<double>();
    manual_seed(uint64_t(get_rank()));
    Context::current().device = Device{DeviceType::kCPU, 1};
  });
  EXPECT_EQ(draws[0], draws[1]);  // from the caller's state
  EXPECT_EQ(draws[0], draws[2]);
  EXPECT_EQ(Context::current().device, kCPU);
}

TEST(RunRanks, NestsAsJobsOfTheirOwn) {
  run_ranks(2, [] {
    const int outer = get_rank();
    run_ranks(3, [] {
      const Tensor x = scalar(1);
      all_reduce(x);
      EXPECT_EQ(x.item<int>(), 3);
    });
    EXPECT_EQ(get_rank(), outer);
    EXPECT_EQ(get_world_size(), 2);
    barrier();
  });
}

TEST(RunRanks, RefusesWhatIsNoJob) {
  EXPECT_THROW(run_ranks(0, [] {}), ValueError);
  EXPECT_THROW(run_ranks(2, [] {}, {.hosts = 3}), ValueError);
  EXPECT_THROW(run_ranks(2, [] {}, {.hosts = 0}), ValueError);
}

TEST(RunRanks, CountsLocalRanksPerHost) {
  run_ranks(5,
            [] {
              EXPECT_EQ(get_local_world_size(), get_rank() < 3 ? 3 : 2);
              EXPECT_EQ(get_local_rank(), get_rank() < 3 ? get_rank() : get_rank() - 3);
            },
            {.hosts = 2});
}

TEST(RunRanks, ARankMayLeaveByItself) {
  run_ranks(2, [] {
    barrier();
    destroy_process_group();
    EXPECT_FALSE(is_initialized());
    EXPECT_EQ(get_world_size(), 1);
    barrier();  // alone now
  });
}

TEST(RunRanks, HasADefaultGroupAlready) {
  run_ranks(2, [] { EXPECT_THROW(init_process_group(), StateError); });
}

}  // namespace
}  // namespace gradus::dist
