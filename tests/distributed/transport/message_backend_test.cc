// The message backend, whose collectives are made of messages of a transport: results, rounding, mismatched
// calls, lost messages, ranks that do not arrive. Ranks are threads, connected by rings in shared memory.
#include "gradus/distributed/transport/message.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "gradus/distributed/base/error.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/transport_rank.h"

namespace gradus::dist::internal {
namespace {

// A job whose ranks are threads, and its message backends over all ranks.
struct Job {
  explicit Job(int size)
      : size(size), memberships(make_local_memberships(size)), transports(make_ring_transports(memberships)) {
    for (int rank = 0; rank < size; ++rank) all.push_back(rank);
  }
  std::unique_ptr<Backend> backend(int rank, uint32_t group = 1) {
    return make_message_backend(transports[rank], all, rank, group);
  }
  Call call(int rank, const char* op = "test", Milliseconds timeout = std::chrono::seconds(20)) {
    return {op, {memberships[rank].get(), Deadline::after(timeout)}};
  }
  int size;
  std::vector<int> all;
  std::vector<std::shared_ptr<Membership>> memberships;
  std::vector<std::shared_ptr<Transport>> transports;
};

TEST(MessageBackend, EveryCollectiveIsRightOn1To8Ranks) {
  for (int size = 1; size <= 8; ++size) {
    Job job(size);
    on_threads(size, [&](int rank) {
      BackendChecks(*job.backend(rank), rank, size, job.memberships[rank].get()).all();
    });
  }
}

TEST(MessageBackend, EveryRankGetsTheSameBitsInEveryRun) { expect_same_bits_in_every_run<Job>({3, 5}); }

TEST(MessageBackend, SixteenBitFloatsAreRoundedOnce) {
  // 256 + 1 is 256 in bf16: adding the ones one by one would lose them all.
  const int size = 8;
  for (const int64_t n : {3, 200'000}) {
    Job job(size);
    on_threads(size, [&](int rank) {
      std::vector<bf16> x(n, bf16(rank == 0 ? 256.f : 1.f));
      job.backend(rank)->all_reduce(job.call(rank), x.data(), x.data(), n, DType::kBF16, ReduceOp::kSum);
      EXPECT_EQ(float(x[0]), float(bf16(263.f)));
      EXPECT_EQ(float(x[n - 1]), float(bf16(263.f)));
    });
  }
}

TEST(MessageBackend, GroupsOnOneTransportDoNotMix) {
  const int size = 4;
  Job job(size);
  on_threads(size, [&](int rank) {
    const auto all = job.backend(rank, 1);
    const std::vector<int> half = rank % 2 ? std::vector<int>{3, 1} : std::vector<int>{0, 2};
    const auto pair = make_message_backend(job.transports[rank], half, half[0] == rank ? 0 : 1, 2 + rank % 2);
    for (int i = 0; i < 50; ++i) {
      float x = float(rank), y = float(rank);
      pair->all_reduce(job.call(rank), &x, &x, 1, DType::kF32, ReduceOp::kSum);
      all->all_reduce(job.call(rank), &y, &y, 1, DType::kF32, ReduceOp::kSum);
      EXPECT_EQ(x, rank % 2 ? 4.f : 2.f);
      EXPECT_EQ(y, 6.f);
    }
  });
}

TEST(MessageBackend, AStrayMessageIsTheSameMismatchOnEveryRank) {
  const int size = 3;
  Job job(size);
  on_threads(size, [&](int rank) {
    const auto backend = job.backend(rank);
    std::vector<float> x(1000);
    // Rank 0 arrives after the others have failed.
    if (rank == 0) std::this_thread::sleep_for(Milliseconds(50));
    try {
      // Rank 2 is one call ahead.
      if (rank == 2) backend->broadcast(job.call(rank, "broadcast"), 2, x.data(), 4000);
      backend->all_reduce(job.call(rank, "all_reduce"), x.data(), x.data(), 1000, DType::kF32,
                          ReduceOp::kSum);
      ADD_FAILURE() << "rank " << rank << " saw no error";
    } catch (const MismatchError& e) {
      EXPECT_NE(std::string(e.what()).find("rank"), std::string::npos) << e.what();
    }
  });
  EXPECT_EQ(job.memberships[0]->failure().text, job.memberships[1]->failure().text);
}

// Loses the first message that is sent.
class LossyTransport final : public Transport {
 public:
  explicit LossyTransport(std::shared_ptr<Transport> below) : below_(std::move(below)) {}
  Ref<Request> send(int peer, Tag tag, std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
    if (std::exchange(lost_, true)) return below_->send(peer, tag, header, payload);
    return make_ref<Done>();
  }
  Ref<Request> receive(int peer, Tag tag, ProvideBuffer provide_buffer, std::vector<int> sources) override {
    return below_->receive(peer, tag, std::move(provide_buffer), std::move(sources));
  }
  void wait(Request& request, const WaitLimits& watch, const char* op) override {
    if (!dynamic_cast<Done*>(&request)) below_->wait(request, watch, op);
  }
  void progress_in_background() override {}

 private:
  struct Done final : Request {
    bool done() override { return true; }
    int source() const override { return kAnySource; }
  };
  const std::shared_ptr<Transport> below_;
  bool lost_ = false;
};

TEST(MessageBackend, TheNextCallsMessageIsNotTakenForALostOne) {
  Job job(2);
  on_threads(2, [&](int rank) {
    const auto backend =
        make_message_backend(std::make_shared<LossyTransport>(job.transports[rank]), job.all, rank, 1);
    int x = 0;
    const auto twice = [&] {
      for (int i = 0; i < 2; ++i) backend->broadcast(job.call(rank, "broadcast"), 0, &x, sizeof x);
    };
    if (rank == 0)
      twice();
    else
      EXPECT_THROW(twice(), MismatchError);
  });
}

TEST(MessageBackend, ARankThatDoesNotComeIsNamedWithinTheTimeout) {
  const int size = 3;
  Job job(size);
  const auto start = now();
  on_threads(size, [&](int rank) {
    if (rank == 1) return;
    const auto backend = job.backend(rank);
    std::vector<float> x(100'000);
    const Call call = job.call(rank, "all_reduce", Milliseconds(300));
    EXPECT_THROW(backend->all_reduce(call, x.data(), x.data(), 100'000, DType::kF32, ReduceOp::kSum),
                 TimeoutError);
  });
  EXPECT_EQ(job.memberships[0]->failure().rank, 1);
  EXPECT_LT(now() - start, std::chrono::seconds(5));
}

TEST(MessageBackend, AFailureOfTheJobEndsACall) {
  Job job(2);
  on_threads(2, [&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(Milliseconds(50));
      job.memberships[1]->report({Failure::Kind::kDied, 1, "rank 1 was killed by signal 9 (SIGKILL)"});
      return;
    }
    float x = 0;
    EXPECT_THROW(job.backend(rank)->broadcast(job.call(rank), 1, &x, sizeof x), PeerError);
  });
}

}  // namespace
}  // namespace gradus::dist::internal
