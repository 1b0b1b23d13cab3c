// The hierarchical backend, which reduces within hosts and then among one leader per host. Ranks are threads
// that are assigned to simulated hosts. All three of its backends send messages through shared memory.
#include <gtest/gtest.h>

#include "gradus/distributed/transport/hosts.h"
#include "gradus/distributed/transport/message.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/transport_rank.h"

namespace gradus::dist::internal {
namespace {

// host[rank] is the simulated host of a rank.
struct Job {
  explicit Job(std::vector<int> host)
      : host(std::move(host)),
        size(int(this->host.size())),
        memberships(make_local_memberships(size)),
        transports(make_ring_transports(memberships)) {}

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
    // 1, 2, 3: ids that separate the messages of the three backends.
    setup.intra_host = make_message_backend(transports[rank], near, place(near), 1);
    if (place(near) == 0)
      setup.inter_host = make_message_backend(transports[rank], leaders, place(leaders), 2);
    setup.all_members = make_message_backend(transports[rank], all, rank, 3);
    return make_hosts_backend(std::move(setup));
  }

  const std::vector<int> host;
  const int size;
  std::vector<std::shared_ptr<Membership>> memberships;
  std::vector<std::shared_ptr<Transport>> transports;
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

}  // namespace
}  // namespace gradus::dist::internal
