#include <gtest/gtest.h>

#include "gradus/distributed/transport/hosts.h"
#include "gradus/distributed/transport/hybrid_transport.h"
#include "gradus/distributed/transport/message.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/mailbox_transport.h"

namespace gradus::dist::internal {
namespace {

// Ranks as threads that take themselves to be on several hosts: host[rank].
struct Job {
  explicit Job(std::vector<int> host)
      : host(std::move(host)),
        size(int(this->host.size())),
        memberships(make_local_memberships(size)),
        within(MailboxTransport::make(size)),
        across(MailboxTransport::make(size)) {}

  Call call(int rank, const char* op = "test", Milliseconds timeout = std::chrono::seconds(20)) {
    return {op, {memberships[rank].get(), Deadline::after(timeout)}};
  }
  std::shared_ptr<Transport> hybrid(int rank) const {
    return make_hybrid_transport(within[rank], across[rank], host, rank);
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
    setup.within = make_message_backend(within[rank], near, place(near), 1);
    if (place(near) == 0) setup.across = make_message_backend(across[rank], leaders, place(leaders), 2);
    setup.flat = make_message_backend(hybrid(rank), all, rank, 3);
    return make_hosts_backend(std::move(setup));
  }

  const std::vector<int> host;
  const int size;
  std::vector<std::shared_ptr<Membership>> memberships;
  std::vector<std::shared_ptr<Transport>> within, across;
};

TEST(HostsBackend, EveryCollectiveIsRightWhateverRankIsWhere) {
  for (const std::vector<int>& host : std::vector<std::vector<int>>{
           {0, 0, 1, 1}, {0, 1, 0, 1, 0}, {0, 0, 0, 1}, {0, 1, 1, 2, 2, 2}, {0, 0}, {0, 1}}) {
    Job job(host);
    on_threads(job.size, [&](int rank) {
      BackendChecks(*job.backend(rank), rank, job.size, job.memberships[rank].get()).all();
    });
  }
}

TEST(HostsBackend, TheMeanOfLarge16BitFloatsDoesNotOverflow) {
  Job job({0, 0, 1, 1});
  on_threads(4, [&](int rank) {
    f16 x = f16(40'000.f);
    job.backend(rank)->all_reduce(job.call(rank), &x, &x, 1, DType::kF16, ReduceOp::kAvg);
    EXPECT_EQ(float(x), float(f16(40'000.f)));
  });
}

TEST(HostsBackend, ARankThatDoesNotComeIsAnErrorOnAllHosts) {
  Job job({0, 0, 1, 1});
  on_threads(4, [&](int rank) {
    if (rank == 3) return;
    float x = 0;
    const Call call = job.call(rank, "all_reduce", Milliseconds(300));
    EXPECT_THROW(job.backend(rank)->all_reduce(call, &x, &x, 1, DType::kF32, ReduceOp::kSum), TimeoutError);
  });
}

const Tag kTag{.group = 7, .channel = Channel::kUser, .number = 3};

TEST(HybridTransport, AReceiveFromAnyRankTakesWhatComesOnEitherWay) {
  Job job({0, 0, 1});
  on_threads(3, [&](int rank) {
    const auto transport = job.hybrid(rank);
    const Watch watch = job.call(rank).watch;
    if (rank != 0) {
      for (int i = 0; i < 20; ++i) {
        const int value = rank * 100 + i;
        transport->wait(*transport->send(0, kTag, {}, std::as_bytes(std::span(&value, 1))), watch, "send");
      }
      return;
    }
    std::vector<int> next(3);
    for (int i = 0; i < 40; ++i) {
      int value = -1;
      const auto accept = [&](int, std::span<const std::byte>, size_t bytes) {
        EXPECT_EQ(bytes, sizeof value);
        return &value;
      };
      const auto request = transport->receive(kAnySource, kTag, accept, {1, 2});
      transport->wait(*request, watch, "recv");
      EXPECT_EQ(value, request->source() * 100 + next[request->source()]++);
    }
  });
}

TEST(HybridTransport, AReceiveFromAnyRankEndsWithTheTimeOrTheJob) {
  Job job({0, 0, 1});
  const auto transport = job.hybrid(0);
  int value;
  const auto accept = [&](int, std::span<const std::byte>, size_t) { return &value; };
  const auto request = transport->receive(kAnySource, kTag, accept, {1, 2});
  EXPECT_FALSE(request->done());
  EXPECT_THROW(transport->wait(*request, job.call(0, "recv", Milliseconds(50)).watch, "recv"), TimeoutError);
  EXPECT_THROW(transport->wait(*request, job.call(0).watch, "recv"), TimeoutError);

  Job deserted({0, 0, 1});
  deserted.memberships[1]->leave();
  deserted.memberships[2]->leave();
  const auto alone = deserted.hybrid(0);
  EXPECT_THROW(alone->wait(*alone->receive(kAnySource, kTag, accept, {1, 2}), deserted.call(0).watch, "recv"),
               PeerError);
}

}  // namespace
}  // namespace gradus::dist::internal
