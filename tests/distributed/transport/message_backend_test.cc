// Collectives made of messages, on one host and on several.
#include "gradus/distributed/transport/message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/transport/hosts.h"
#include "gradus/distributed/transport/ring_transport.h"
#include "gradus/tests/distributed/transport/backend_checks.h"

namespace gradus::dist::internal {
namespace {

// Ring transports of threads, which share a segment.
struct Rings {
  explicit Rings(const std::vector<std::shared_ptr<Membership>>& memberships) {
    const int size = int(memberships.size());
    const auto segment = std::make_shared<Segment>(ring_bytes(size));
    for (int rank = 0; rank < size; ++rank) all.push_back(rank);
    for (int rank = 0; rank < size; ++rank)
      of_rank.push_back(make_ring_transport(segment, memberships[rank], all, rank));
  }
  std::vector<int> all;
  std::vector<std::shared_ptr<Transport>> of_rank;
};

// A job whose ranks are threads, and its message backends over all ranks.
struct Job {
  explicit Job(int size) : size(size), memberships(make_local_memberships(size)), rings(memberships) {}
  std::unique_ptr<Backend> backend(int rank, uint32_t group = 1) {
    return make_message_backend(rings.of_rank[rank], rings.all, rank, group);
  }
  Call call(int rank, const char* op = "test", Milliseconds timeout = std::chrono::seconds(20)) {
    return {op, {memberships[rank].get(), Deadline::after(timeout)}};
  }
  int size;
  std::vector<std::shared_ptr<Membership>> memberships;
  Rings rings;
};

TEST(MessageBackend, EveryCollectiveIsRight) {
  for (const int size : {1, 2, 3, 5, 8}) {
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
    const auto pair =
        make_message_backend(job.rings.of_rank[rank], half, half[0] == rank ? 0 : 1, 2 + rank % 2);
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
    // Rank 0 comes when the others have failed, and what they sent it is gone.
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
  Ref<Request> receive(int peer, Tag tag, Accept accept, std::vector<int> sources) override {
    return below_->receive(peer, tag, std::move(accept), std::move(sources));
  }
  void wait(Request& request, const Watch& watch, const char* op) override {
    if (!dynamic_cast<Done*>(&request)) below_->wait(request, watch, op);
  }
  int probe(Tag tag, const std::vector<int>& sources) override { return below_->probe(tag, sources); }
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
    const auto backend = make_message_backend(std::make_shared<LossyTransport>(job.rings.of_rank[rank]),
                                              job.rings.all, rank, 1);
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

// ---- several hosts ----

// Ranks as threads that take themselves to be on several hosts: host[rank].
struct JobOnHosts {
  explicit JobOnHosts(std::vector<int> host)
      : host(std::move(host)),
        size(int(this->host.size())),
        memberships(make_local_memberships(size)),
        rings(memberships) {}

  Call call(int rank, const char* op = "test", Milliseconds timeout = std::chrono::seconds(20)) {
    return {op, {memberships[rank].get(), Deadline::after(timeout)}};
  }
  std::unique_ptr<Backend> backend(int rank) const {
    std::vector<int> all, near, leaders;
    for (int r = 0; r < size; ++r) {
      all.push_back(r);
      if (host[r] == host[rank]) near.push_back(r);
      if (std::find(host.begin(), host.begin() + r, host[r]) == host.begin() + r) leaders.push_back(r);
    }
    const auto place = [&](const std::vector<int>& ranks) {
      return int(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    };
    HostsSetup setup{.members = all, .host = host, .index = rank};
    setup.within = make_message_backend(rings.of_rank[rank], near, place(near), 1);
    if (place(near) == 0)
      setup.across = make_message_backend(rings.of_rank[rank], leaders, place(leaders), 2);
    setup.flat = make_message_backend(rings.of_rank[rank], all, rank, 3);
    return make_hosts_backend(std::move(setup));
  }

  const std::vector<int> host;
  const int size;
  std::vector<std::shared_ptr<Membership>> memberships;
  Rings rings;
};

TEST(HostsBackend, EveryCollectiveIsRightWhateverRankIsWhere) {
  for (const std::vector<int>& host : std::vector<std::vector<int>>{
           {0, 0, 1, 1}, {0, 1, 0, 1, 0}, {0, 0, 0, 1}, {0, 1, 1, 2, 2, 2}, {0, 0}, {0, 1}}) {
    JobOnHosts job(host);
    on_threads(job.size, [&](int rank) {
      BackendChecks(*job.backend(rank), rank, job.size, job.memberships[rank].get()).all();
    });
  }
}

TEST(HostsBackend, TheMeanOfLarge16BitFloatsDoesNotOverflow) {
  JobOnHosts job({0, 0, 1, 1});
  on_threads(4, [&](int rank) {
    f16 x = f16(40'000.f);
    job.backend(rank)->all_reduce(job.call(rank), &x, &x, 1, DType::kF16, ReduceOp::kAvg);
    EXPECT_EQ(float(x), float(f16(40'000.f)));
  });
}

}  // namespace
}  // namespace gradus::dist::internal
