// The arena backend, whose ranks exchange data through a shared segment: all collectives against closed
// forms, ranks that do not arrive, exit or are killed, corrupt memory. Ranks are threads or forked processes.
#include "gradus/distributed/transport/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/distributed/base/error.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/forked_process.h"

namespace gradus::dist::internal {
namespace {

using namespace std::chrono_literals;

// A job whose ranks share a segment.
struct Job {
  explicit Job(int size) : size(size), memberships(make_local_memberships(size)) {
    for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
    Futex::set_ranks_on_host(size);
  }
  std::unique_ptr<Backend> backend(int rank) { return make_arena_backend(segment, ranks, rank); }
  Call call(int rank, const char* op = "test", Milliseconds timeout = 60s) {
    return {op, {memberships[rank].get(), Deadline::after(timeout)}};
  }
  int size;
  std::vector<int> ranks;
  std::vector<std::shared_ptr<Membership>> memberships;
  std::shared_ptr<Segment> segment = std::make_shared<Segment>(arena_bytes(size));
};

double seconds_since(TimePoint start) { return std::chrono::duration<double>(now() - start).count(); }

class ArenaOfRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, ArenaOfRanks, ::testing::Values(1, 2, 3, 5, 8));

TEST_P(ArenaOfRanks, EveryCollectiveIsRight) {
  Job job(GetParam());
  on_threads(job.size, [&](int rank) {
    const auto backend = job.backend(rank);
    BackendChecks checks(*backend, rank, job.size, job.memberships[rank].get());
    checks.all();
    checks.exchange();
  });
}

// Lengths around those at which the number of rounds and the algorithm change.
TEST_P(ArenaOfRanks, AllReduceIsRightAtEveryLength) {
  Job job(GetParam());
  on_threads(job.size, [&](int rank) {
    const auto backend = job.backend(rank);
    for (const int64_t bytes : {1 << 16, 1 << 18})
      for (const int64_t n : {bytes / job.size, bytes, 2 * bytes})
        for (const int64_t more : {-1, 0, 1}) {
          std::vector<uint8_t> x = contributions<uint8_t>(rank, n + more);
          backend->all_reduce(job.call(rank), x.data(), x.data(), n + more, DType::kU8, ReduceOp::kMax);
          EXPECT_TRUE(x == reduced<uint8_t>(job.size, n + more, ReduceOp::kMax)) << n + more << " bytes";
        }
  });
}

TEST(Arena, EveryRankGetsTheSameBitsInEveryRun) { expect_same_bits_in_every_run<Job>({2, 3, 5}); }

TEST(Arena, AGatherMayTakeFromItsOwnOutput) {
  Job job(3);
  on_threads(job.size, [&](int rank) {
    const auto backend = job.backend(rank);
    std::string all(6, '?');
    std::vector<Block> out = {{all.data(), 2}, {all.data() + 2, 2}, {all.data() + 4, 2}};
    all.replace(2 * rank, 2, std::string(2, char('a' + rank)));
    backend->all_gather(job.call(rank), {out[rank].data, 2}, out);
    EXPECT_EQ(all, "aabbcc");

    std::string at_root = std::string(2 * rank, '?') + "xy" + std::string(4 - 2 * rank, '?');
    out = {{at_root.data(), 2}, {at_root.data() + 2, 2}, {at_root.data() + 4, 2}};
    std::vector<ConstBlock> in(3);
    in[1] = {out[rank].data, 2};
    backend->exchange_blocks(job.call(rank), in, rank == 1 ? out : std::vector<Block>(3));
    EXPECT_EQ(at_root, rank == 1 ? "xyxyxy" : rank == 0 ? "xy????" : "????xy");
  });
}

TEST(Arena, ManyShortRoundsKeepApart) {
  Job job(4);
  on_threads(job.size, [&](int rank) {
    const auto backend = job.backend(rank);
    for (int i = 0; i < 500; ++i) {
      int64_t x = i * 4 + rank;
      backend->all_reduce(job.call(rank), &x, &x, 1, DType::kI64, ReduceOp::kSum);
      ASSERT_EQ(x, i * 16 + 6);
      int32_t y = rank == i % 4 ? i : -1;
      backend->broadcast(job.call(rank), i % 4, &y, sizeof y);
      ASSERT_EQ(y, i);
    }
  });
}

TEST(Arena, ARankThatDoesNotComeIsNamedInTime) {
  Job job(3);
  const TimePoint start = now();
  on_threads(2, [&](int rank) {
    try {
      job.backend(rank)->exchange(job.call(rank, "barrier", 200ms), "");
      ADD_FAILURE() << "nobody came, yet it went on";
    } catch (const TimeoutError& error) {
      EXPECT_EQ(error.rank(), 2) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 2 did not come to barrier within 200 ms"));
    }
  });
  EXPECT_LT(seconds_since(start), 2);
}

TEST(Arena, ARankThatHasLeftIsAnErrorAtOnce) {
  Job job(3);
  const TimePoint start = now();
  on_threads(3, [&](int rank) {
    const auto backend = job.backend(rank);
    backend->exchange(job.call(rank), "");
    if (rank == 1) return job.memberships[1]->leave();
    try {
      backend->exchange(job.call(rank, "barrier"), "");
      ADD_FAILURE() << "rank 1 has left, yet it went on";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 1) << error.what();
    }
  });
  EXPECT_LT(seconds_since(start), 2);
}

TEST(Arena, WhatARankGaveBeforeItLeftCounts) {
  for (int i = 0; i < 20; ++i) {
    Job job(2);
    on_threads(2, [&](int rank) {
      int32_t x = rank + 1;
      job.backend(rank)->all_reduce(job.call(rank), &x, &x, 1, DType::kI32, ReduceOp::kSum);
      job.memberships[rank]->leave();
      EXPECT_EQ(x, 3);
    });
  }
}

TEST(Arena, CorruptMemoryIsAnError) {
  Job job(2);
  on_threads(2, [&](int rank) {
    const auto backend = job.backend(rank);
    backend->exchange(job.call(rank), "abc");
    if (rank == 1) {
      // A length that is too large, where rank 1's buffer of the next round begins; then on to
      // that round by hand.
      const uint64_t length = kMaxExchangeBytes + 1;
      const size_t buffer_bytes = (arena_bytes(4) - arena_bytes(2)) / 4;
      std::byte* const buffers = job.segment->data() + arena_bytes(2) - 4 * buffer_bytes;
      std::memcpy(buffers + 2 * buffer_bytes, &length, sizeof length);
      auto* round = reinterpret_cast<std::atomic<uint64_t>*>(job.segment->data() + 2 * 64);
      EXPECT_EQ(round->load(), 1u);
      round->store(2);
      return;
    }
    try {
      backend->exchange(job.call(rank), "abc");
      ADD_FAILURE() << "no error";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 1) << error.what();
    }
  });
}

// Kills rank 1 somewhere inside of a collective, several times at different points.
TEST(ArenaOfProcesses, ARankThatIsKilledInACollectiveEndsItOnTheOthers) {
  for (int i = 0; i < 4; ++i) {
    Job job(3);
    const auto run = [&job](int rank) {
      const auto backend = job.backend(rank);
      std::vector<float> x(1'000'000, 1.f);
      for (;;)
        backend->all_reduce(job.call(rank, "all_reduce"), x.data(), x.data(), x.size(), DType::kF32,
                            ReduceOp::kMax);
    };
    ForkedProcess victim([&] { run(1); });
    ForkedProcess other([&] { run(2); });
    TimePoint killed{};
    std::thread watcher([&] {
      std::this_thread::sleep_for(20ms + i * 3ms);
      killed = now();
      EXPECT_EQ(WTERMSIG(victim.kill()), SIGKILL);
      job.memberships[0]->report({Failure::Kind::kDied, 1, "rank 1 was killed by signal 9 (SIGKILL)"});
    });
    try {
      run(0);
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_STREQ(error.what(), "[all_reduce] rank 1 was killed by signal 9 (SIGKILL)");
    }
    watcher.join();
    EXPECT_LT(seconds_since(killed), 1);
  }
}

}  // namespace
}  // namespace gradus::dist::internal
