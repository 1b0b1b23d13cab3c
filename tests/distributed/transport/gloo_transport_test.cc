#include "gradus/distributed/transport/gloo_transport.h"
#include "gradus/distributed/store/memory_store.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <thread>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/store_server.h"
#include "gradus/distributed/store/tcp_store.h"
#include "gradus/distributed/transport/message.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/transport_rank.h"

namespace gradus::dist::internal {
namespace {

// A job whose ranks are threads that talk over loopback.
struct Job {
  explicit Job(int size)
      : size(size), store(make_memory_store()), memberships(make_local_memberships(size)) {}

  Watch watch(int rank, Milliseconds timeout = std::chrono::seconds(20)) const {
    return {memberships[rank].get(), Deadline::after(timeout)};
  }
  std::shared_ptr<Transport> connect(int rank, Milliseconds timeout = std::chrono::seconds(20)) const {
    return make_gloo_transport({rank, size, store, memberships[rank], "127.0.0.1"}, watch(rank, timeout));
  }
  void run(const std::function<void(int, Transport&, const Watch&)>& body) const {
    on_threads(size, [&](int rank) {
      const auto transport = connect(rank);
      body(rank, *transport, watch(rank));
      memberships[rank]->leave();
    });
  }

  const int size;
  std::shared_ptr<Store> store;
  std::vector<std::shared_ptr<Membership>> memberships;
};

TEST(GlooTransport, ARankThatDoesNotComeIsNamedWithinTheTimeout) {
  const Job job(3);
  const auto start = now();
  on_threads(3, [&](int rank) {
    if (rank == 1) return;
    EXPECT_THROW(job.connect(rank, Milliseconds(300)), TimeoutError);
  });
  EXPECT_EQ(job.memberships[0]->failure().rank, 1) << job.memberships[0]->failure().text;
  EXPECT_LT(now() - start, std::chrono::seconds(2));
}

TEST(GlooTransport, ARankThatStopsOnItsWayInEndsTheOthersWithTheJob) {
  const Job job(3);
  const auto start = now();
  on_threads(3, [&](int rank) {
    if (rank == 1) {
      // It has said where it is, but nobody is there.
      const Job elsewhere(3);
      std::thread liar([&] { EXPECT_THROW(elsewhere.connect(1, Milliseconds(200)), TimeoutError); });
      job.store->set("gloo/1", elsewhere.store->get("gloo/1"));
      std::this_thread::sleep_for(Milliseconds(100));
      job.memberships[1]->report({Failure::Kind::kDied, 1, "rank 1 was killed by signal 9 (SIGKILL)"});
      liar.join();
      return;
    }
    EXPECT_THROW(job.connect(rank), PeerError);
  });
  EXPECT_LT(now() - start, std::chrono::seconds(3));
}

TEST(GlooTransport, APayloadThatNobodyTakesIsATimeoutOfItsSender) {
  const Job job(2);
  on_threads(2, [&](int rank) {
    const TransportRank me{rank, job.memberships[rank], job.connect(rank)};
    if (rank == 0) {
      const std::string mine = text_of(1 << 20, 0);
      const auto request = me.start_send(1, 1, mine);
      EXPECT_THROW(me.transport->wait(*request, me.watch(Milliseconds(300)), "send"), TimeoutError);
      return;
    }
    while (!job.memberships[1]->failed()) std::this_thread::sleep_for(Milliseconds(5));
  });
}

TEST(GlooTransport, ABrokenConnectionIsAnErrorWhenNobodyKnowsBetter) {
  for (const bool sends : {false, true}) {
    const Job job(2);
    on_threads(2, [&](int rank) {
      const TransportRank me{rank, job.memberships[rank], job.connect(rank)};
      if (rank == 1) return;  // without leaving
      const std::string mine = text_of(1 << 20, 0);
      std::string received;
      const auto request = sends ? me.start_send(1, 1, mine) : me.start_receive(1, 1, received);
      const auto start = now();
      EXPECT_THROW(me.wait(request), PeerError);
      EXPECT_LT(now() - start, std::chrono::seconds(2));
    });
    EXPECT_EQ(job.memberships[0]->failure().kind, Failure::Kind::kDied);
    EXPECT_EQ(job.memberships[0]->failure().rank, 1);
    EXPECT_EQ(job.memberships[0]->failure().text.find("connection to rank 1 broke"), 0u);
  }
}

TEST(GlooTransport, StrangersWhoConnectAreNoRanks) {
  const Job job(2);
  std::vector<FileDescriptor> strangers;
  const auto start = now();
  on_threads(3, [&](int rank) {
    if (rank < 2) {
      try {
        const auto transport = job.connect(rank, std::chrono::seconds(3));
        job.memberships[rank]->leave();
      } catch (const DistributedError&) {
      }
      return;
    }
    for (int r = 0; r < 2; ++r) {
      const auto entry = from_wire<std::vector<std::pair<std::vector<std::string>, std::string>>>(
          job.store->get(concat("gloo/", r)));
      SocketAddress address;
      address.length = sizeof(sockaddr_in);
      std::memcpy(&address.storage, entry[1 - r].first[0].data(), sizeof address.storage);
      std::string why;
      strangers.push_back(connect_to(address, Deadline::after(Milliseconds(500)), &why));
    }
  });
  EXPECT_LT(now() - start, std::chrono::seconds(6));
}

TEST(GlooTransport, WhoDoesNotKnowARanksSecretIsNotThatRank) {
  // Each rank has a store of its own; what rank 1 says of itself comes to rank 0 with other secrets.
  Job one(2), other(2);
  other.memberships = one.memberships;
  using Entry = std::vector<std::pair<std::vector<std::string>, std::string>>;
  on_threads(3, [&](int rank) {
    if (rank == 2) {
      one.store->wait({"gloo/0"});
      other.store->set("gloo/0", one.store->get("gloo/0"));
      auto entry = from_wire<Entry>(other.store->get("gloo/1"));
      for (auto& [addresses, secret] : entry) secret += "?";
      one.store->set("gloo/1", to_wire(entry));
      return;
    }
    if (rank == 0)
      EXPECT_THROW(one.connect(0), PeerError);
    else
      other.connect(1);  // rank 0 is who it says
  });
  EXPECT_NE(one.memberships[0]->failure().text.find("somebody else came in place of rank 1"),
            std::string::npos)
      << one.memberships[0]->failure().text;
}

}  // namespace
}  // namespace gradus::dist::internal
