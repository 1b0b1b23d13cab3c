// Socket connections between ranks (connect_ranks) and the transport over them: collectives, timeouts, broken
// connections, strangers and impostors. Ranks are threads that find each other through a store in memory.
#include "gradus/distributed/transport/connect_ranks.h"
#include "gradus/distributed/store/memory_store.h"

#include <gtest/gtest.h>

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

constexpr size_t kMoreThanKernelBuffers = 64 << 20;
// What rank r publishes under "sockets/r": its address and port, and its secret for each peer.
using Contact = std::pair<std::pair<std::string, int>, std::vector<std::pair<int, std::string>>>;

// A job whose ranks are threads connected over the loopback interface.
struct Job {
  explicit Job(int size)
      : size(size), store(make_memory_store()), memberships(make_local_memberships(size)) {}

  WaitLimits watch(int rank, Milliseconds timeout = std::chrono::seconds(20)) const {
    return {memberships[rank].get(), Deadline::after(timeout)};
  }
  std::shared_ptr<Transport> connect(int rank, Milliseconds timeout = std::chrono::seconds(20)) const {
    return make_socket_transport(rank, size, store, memberships[rank], watch(rank, timeout));
  }
  void run(const std::function<void(int, Transport&, const WaitLimits&)>& body) const {
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

TEST(ConnectRanks, CarriesAllCollectives) {
  for (int size = 1; size <= 4; ++size)
    Job(size).run([&](int rank, Transport& transport, const WaitLimits& watch) {
      std::vector<int> all(size);
      for (int r = 0; r < size; ++r) all[r] = r;
      const std::shared_ptr<Transport> shared(&transport, [](Transport*) {});
      const auto backend = make_message_backend(shared, all, rank, 1);
      BackendChecks(*backend, rank, size, watch.membership).all();
    });
}

TEST(ConnectRanks, ARankThatDoesNotComeIsNamedWithinTheTimeout) {
  const Job job(3);
  const auto start = now();
  on_threads(3, [&](int rank) {
    if (rank == 1) return;
    EXPECT_THROW(job.connect(rank, Milliseconds(300)), TimeoutError);
  });
  EXPECT_EQ(job.memberships[0]->failure().rank, 1) << job.memberships[0]->failure().text;
  EXPECT_LT(now() - start, std::chrono::seconds(2));
}

TEST(ConnectRanks, ARankThatStopsOnItsWayInEndsTheOthersWithTheJob) {
  const Job job(3);
  const auto start = now();
  on_threads(3, [&](int rank) {
    if (rank == 1) {
      // Rank 1 publishes the address of another job, and then dies.
      const Job elsewhere(3);
      std::thread liar([&] { EXPECT_THROW(elsewhere.connect(1, Milliseconds(200)), TimeoutError); });
      job.store->set("sockets/1", elsewhere.store->get("sockets/1"));
      std::this_thread::sleep_for(Milliseconds(100));
      job.memberships[1]->report({Failure::Kind::kDied, 1, "rank 1 was killed by signal 9 (SIGKILL)"});
      liar.join();
      return;
    }
    EXPECT_THROW(job.connect(rank), PeerError);
  });
  EXPECT_LT(now() - start, std::chrono::seconds(3));
}

TEST(ConnectRanks, APayloadThatNobodyTakesIsATimeoutOfItsSender) {
  const Job job(2);
  on_threads(2, [&](int rank) {
    const TransportRank me{rank, job.memberships[rank], job.connect(rank)};
    if (rank == 0) {
      const std::string mine(kMoreThanKernelBuffers, 'x');
      const auto request = me.start_send(1, 1, mine);
      EXPECT_THROW(me.transport->wait(*request, me.watch(Milliseconds(300)), "send"), TimeoutError);
      return;
    }
    while (!job.memberships[1]->failed()) std::this_thread::sleep_for(Milliseconds(5));
  });
}

TEST(ConnectRanks, ABrokenConnectionIsAnErrorWhenNobodyKnowsBetter) {
  for (const bool sends : {false, true}) {
    const Job job(2);
    on_threads(2, [&](int rank) {
      const TransportRank me{rank, job.memberships[rank], job.connect(rank)};
      if (rank == 1) return;  // without membership->leave()
      const std::string mine(kMoreThanKernelBuffers, 'x');
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

TEST(ConnectRanks, StrangersWhoConnectAreIgnored) {
  const Job job(2);
  std::vector<FileDescriptor> strangers;
  on_threads(2, [&](int rank) {
    if (rank == 0) {
      EXPECT_NO_THROW(job.connect(0));
      return;
    }
    const auto [endpoint, secrets] = from_wire<Contact>(job.store->get("sockets/0"));
    std::string why;
    const Deadline deadline = Deadline::after(std::chrono::seconds(5));
    // Nothing, a part of a greeting, the greeting of rank 1 with a wrong secret, and of a rank 7.
    for (const std::string& text :
         {std::string(), std::string("abc"), to_wire(int32_t(1)) + std::string(32, '0'),
          to_wire(int32_t(7)) + std::string(100, '0')}) {
      const auto addresses = resolve(endpoint.first, endpoint.second, deadline, &why);
      ASSERT_FALSE(addresses.empty()) << why;
      strangers.push_back(connect_to(addresses[0], deadline, &why));
      ASSERT_TRUE(strangers.back()) << why;
      EXPECT_EQ(send_all(strangers.back(), text, deadline, &why), Io::kDone);
    }
    EXPECT_NO_THROW(job.connect(1));
  });
}

TEST(ConnectRanks, WhoDoesNotKnowARanksSecretIsNotThatRank) {
  // Each rank has its own store. Thread 2 copies the contacts, the liar's with changed secrets.
  for (const int liar : {0, 1}) {
    Job one(2), other(2);
    other.memberships = one.memberships;
    const std::string key = concat("sockets/", liar), honest = concat("sockets/", 1 - liar);
    Job& of_liar = liar == 1 ? other : one;
    Job& of_honest = liar == 1 ? one : other;
    on_threads(3, [&](int rank) {
      if (rank == liar) {
        try {
          of_liar.connect(rank, Milliseconds(1000));
        } catch (const DistributedError&) {  // the other rank has reported it
        }
        return;
      }
      if (rank < 2) {
        EXPECT_THROW(of_honest.connect(rank, Milliseconds(1000)), DistributedError);
        return;
      }
      of_liar.store->set(honest, of_honest.store->get(honest));
      auto contact = from_wire<Contact>(of_liar.store->get(key));
      for (auto& [peer, secret] : contact.second) secret.back() = secret.back() == '0' ? '1' : '0';
      of_honest.store->set(key, to_wire(contact));
    });
  }
}

// Makes the transports of three ranks, of which 0 and 1 share memory.
std::vector<std::shared_ptr<Transport>> mixed_transports(const Job& job) {
  const auto segment = std::make_shared<Segment>(ring_bytes(2));
  std::vector<std::shared_ptr<Transport>> transports(3);
  on_threads(3, [&](int rank) {
    const std::vector<int> peers = rank == 2 ? std::vector{0, 1} : std::vector{2};
    auto sockets = connect_ranks({rank, peers, job.store, "127.0.0.1"}, job.watch(rank));
    transports[rank] =
        rank == 2 ? make_stream_transport(std::make_shared<Segment>(ring_bytes(1)), job.memberships[rank],
                                          {2}, 0, std::move(sockets))
                  : make_stream_transport(segment, job.memberships[rank], {0, 1}, rank, std::move(sockets));
  });
  return transports;
}

TEST(StreamTransport, AReceiveFromAnyRankTakesWhatComesByRingOrSocket) {
  const Job job(3);
  const auto transports = mixed_transports(job);
  on_threads(3, [&](int rank) {
    const TransportRank me{rank, job.memberships[rank], transports[rank]};
    for (int i = 0; rank != 0 && i < 20; ++i) me.send(0, 3, std::to_string(rank * 100 + i));
    std::vector<int> next(3);
    for (int i = 0; rank == 0 && i < 40; ++i) {
      std::string text;
      const auto request = me.start_receive(kAnySource, 3, text, nullptr, {1, 2});
      me.wait(request);
      EXPECT_EQ(text, std::to_string(request->source() * 100 + next[request->source()]++));
    }
  });
}

TEST(StreamTransport, AReceiveFromAnyRankEndsWithTheTimeOrTheJob) {
  const Job job(3);
  const auto transports = mixed_transports(job);
  const TransportRank me{0, job.memberships[0], transports[0]};
  std::string text;
  const auto request = me.start_receive(kAnySource, 3, text, nullptr, {1, 2});
  EXPECT_FALSE(request->done());
  EXPECT_THROW(me.transport->wait(*request, me.watch(Milliseconds(50)), "recv"), TimeoutError);
  EXPECT_THROW(me.wait(request), TimeoutError);

  const Job deserted(3);
  const auto others = mixed_transports(deserted);
  deserted.memberships[1]->leave();
  deserted.memberships[2]->leave();
  const TransportRank alone{0, deserted.memberships[0], others[0]};
  EXPECT_THROW(alone.wait(alone.start_receive(kAnySource, 3, text, nullptr, {1, 2})), PeerError);
}

}  // namespace
}  // namespace gradus::dist::internal
