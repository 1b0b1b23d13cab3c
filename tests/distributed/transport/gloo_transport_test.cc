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

Tag tag(uint32_t number) { return {.group = 5, .channel = Channel::kUser, .number = number}; }

std::span<const std::byte> bytes_of(std::string_view s) { return std::as_bytes(std::span(s)); }

// Receives a message of any size.
struct Letter {
  std::string header, payload;
  Accept accept() {
    return [this](int, std::span<const std::byte> head, size_t bytes) {
      header.assign(reinterpret_cast<const char*>(head.data()), head.size());
      payload.assign(bytes, '?');
      return payload.data();
    };
  }
};

std::string text(size_t bytes, int seed) {
  std::string s(bytes, ' ');
  for (size_t i = 0; i < bytes; ++i) s[i] = char('a' + (i * 7 + i / 1000 + seed) % 26);
  return s;
}

// ---- what arrives

TEST(GlooTransport, MessagesOfAllSizesArriveInOrder) {
  const std::vector<size_t> sizes = {0, 1, 100, 16'384, 16'385, 100'000, 3'000'001, 5, 0, 70'000};
  Job(2).run([&](int rank, Transport& transport, const Watch& watch) {
    const int peer = 1 - rank;
    std::vector<std::string> out;
    std::vector<Ref<Request>> requests;
    for (size_t i = 0; i < sizes.size(); ++i) out.push_back(text(sizes[i], rank + int(i)));
    for (size_t i = 0; i < sizes.size(); ++i)
      requests.push_back(transport.send(peer, tag(1), bytes_of(std::to_string(i)), bytes_of(out[i])));
    for (size_t i = 0; i < sizes.size(); ++i) {
      Letter letter;
      const auto request = transport.receive(peer, tag(1), letter.accept());
      transport.wait(*request, watch, "recv");
      EXPECT_EQ(request->source(), peer);
      EXPECT_EQ(letter.header, std::to_string(i));
      EXPECT_TRUE(letter.payload == text(sizes[i], peer + int(i))) << sizes[i];
    }
    for (const auto& request : requests) transport.wait(*request, watch, "send");
  });
}

TEST(GlooTransport, AThousandSmallMessagesArriveInOrderWhoeverWaitsFirst) {
  Job(2).run([&](int rank, Transport& transport, const Watch& watch) {
    const int n = 1000;
    if (rank == 0) {
      for (int i = 0; i < n; ++i)
        transport.wait(*transport.send(1, tag(1), {}, bytes_of(std::to_string(i))), watch, "send");
      return;
    }
    std::vector<Letter> letters(n);
    std::vector<Ref<Request>> requests;
    for (int i = 0; i < n; ++i) requests.push_back(transport.receive(0, tag(1), letters[i].accept()));
    for (int i = n - 1; i >= 0; --i) transport.wait(*requests[i], watch, "recv");
    for (int i = 0; i < n; ++i) EXPECT_EQ(letters[i].payload, std::to_string(i));
  });
}

TEST(GlooTransport, TagsAreApartAndMayBeReceivedInAnyOrder) {
  for (const size_t bytes : {10, 200'000})
    Job(2).run([&](int rank, Transport& transport, const Watch& watch) {
      if (rank == 0) {
        const std::string first = text(bytes, 1), second = text(bytes, 2);
        const auto one = transport.send(1, tag(1), {}, bytes_of(first));
        const auto two = transport.send(1, tag(2), {}, bytes_of(second));
        transport.wait(*one, watch, "send");
        transport.wait(*two, watch, "send");
      } else {
        for (const int number : {2, 1}) {
          Letter letter;
          transport.wait(*transport.receive(0, tag(number), letter.accept()), watch, "recv");
          EXPECT_TRUE(letter.payload == text(bytes, number));
        }
      }
    });
}

TEST(GlooTransport, AReceiveFromAnyRankSaysWhoItWas) {
  for (const size_t bytes : {10, 100'000})
    Job(4).run([&](int rank, Transport& transport, const Watch& watch) {
      if (rank != 0) {
        for (int i = 0; i < 5; ++i) {
          const std::string mine = text(bytes, rank * 5 + i);
          transport.wait(*transport.send(0, tag(1), {}, bytes_of(mine)), watch, "send");
        }
        return;
      }
      std::vector<int> next(4);
      for (int i = 0; i < 15; ++i) {
        Letter letter;
        const auto request = transport.receive(kAnySource, tag(1), letter.accept(), {1, 2, 3});
        transport.wait(*request, watch, "recv");
        const int from = request->source();
        EXPECT_TRUE(letter.payload == text(bytes, from * 5 + next[from]++)) << from;
      }
      EXPECT_EQ(next, (std::vector<int>{0, 5, 5, 5}));
    });
}

TEST(GlooTransport, AProbeSeesWhatNobodyReceives) {
  Job(2).run([&](int rank, Transport& transport, const Watch& watch) {
    if (rank == 0) {
      transport.wait(*transport.send(1, tag(3), {}, bytes_of("x")), watch, "send");
      return;
    }
    while (transport.probe(tag(3), {0, 1}) != 0) std::this_thread::sleep_for(Milliseconds(1));
    EXPECT_EQ(transport.probe(tag(4), {0, 1}), kAnySource);
    EXPECT_EQ(transport.probe(tag(3), {1}), kAnySource);
    Letter letter;
    transport.wait(*transport.receive(0, tag(3), letter.accept()), watch, "recv");
    EXPECT_EQ(transport.probe(tag(3), {0, 1}), kAnySource);
  });
}

TEST(GlooTransport, ARankMaySendToItself) {
  Job(1).run([&](int, Transport& transport, const Watch& watch) {
    const std::string mine = text(100'000, 1);
    const auto send = transport.send(0, tag(1), bytes_of("head"), bytes_of(mine));
    Letter letter;
    transport.wait(*transport.receive(kAnySource, tag(1), letter.accept()), watch, "recv");
    transport.wait(*send, watch, "send");
    EXPECT_EQ(letter.header, "head");
    EXPECT_TRUE(letter.payload == mine);
  });
}

TEST(GlooTransport, LargeMessagesMoveBothWaysBetweenAllAtOnce) {
  Job(3).run([&](int rank, Transport& transport, const Watch& watch) {
    const std::string mine = text(8 << 20, rank);
    std::vector<Letter> letters(3);
    std::vector<Ref<Request>> requests;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      requests.push_back(transport.send(peer, tag(1), {}, bytes_of(mine)));
      requests.push_back(transport.receive(peer, tag(1), letters[peer].accept()));
    }
    for (const auto& request : requests) transport.wait(*request, watch, "exchange");
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_TRUE(peer == rank || letters[peer].payload == text(8 << 20, peer));
  });
}

TEST(GlooTransport, DoneBecomesTrueWithoutAWait) {
  Job(2).run([&](int rank, Transport& transport, const Watch&) {
    const std::string mine = text(500'000, rank);
    Letter letter;
    const auto send = transport.send(1 - rank, tag(1), {}, bytes_of(mine));
    const auto receive = transport.receive(1 - rank, tag(1), letter.accept());
    while (!send->done() || !receive->done()) std::this_thread::sleep_for(Milliseconds(1));
    EXPECT_TRUE(letter.payload == text(500'000, 1 - rank));
  });
}

TEST(GlooTransport, WhatAcceptThrowsIsTheReceivesErrorAndNoOneElses) {
  for (const size_t bytes : {10, 100'000})
    Job(2).run([&](int rank, Transport& transport, const Watch& watch) {
      if (rank == 0) {
        for (int i = 0; i < 2; ++i) {
          const std::string mine = text(bytes, i);
          transport.wait(*transport.send(1, tag(1), {}, bytes_of(mine)), watch, "send");
        }
        return;
      }
      const auto refuse = [](int, std::span<const std::byte>, size_t) -> void* {
        throw ValueError("recv", "too long");
      };
      EXPECT_THROW(transport.wait(*transport.receive(0, tag(1), refuse), watch, "recv"), ValueError);
      Letter letter;
      transport.wait(*transport.receive(0, tag(1), letter.accept()), watch, "recv");
      EXPECT_TRUE(letter.payload == text(bytes, 1));
    });
}

TEST(GlooTransport, CarriesAllCollectives) {
  for (int size = 1; size <= 4; ++size)
    Job(size).run([&](int rank, Transport& transport, const Watch& watch) {
      std::vector<int> all(size);
      for (int r = 0; r < size; ++r) all[r] = r;
      const std::shared_ptr<Transport> shared(&transport, [](Transport*) {});
      const auto backend = make_message_backend(shared, all, rank, 1);
      BackendChecks(*backend, rank, size, watch.membership).all();
    });
}

// ---- what goes wrong

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

TEST(GlooTransport, AMessageThatDoesNotComeIsATimeoutThatNamesTheRank) {
  const Job job(2);
  on_threads(2, [&](int rank) {
    const auto transport = job.connect(rank);
    if (rank == 0) {
      Letter letter;
      const auto request = transport->receive(1, tag(1), letter.accept());
      const auto start = now();
      EXPECT_THROW(transport->wait(*request, job.watch(0, Milliseconds(300)), "recv"), TimeoutError);
      EXPECT_LT(now() - start, std::chrono::seconds(2));
      return;
    }
    while (!job.memberships[1]->failed()) std::this_thread::sleep_for(Milliseconds(5));
  });
  EXPECT_EQ(job.memberships[1]->failure().rank, 1);
}

TEST(GlooTransport, APayloadThatNobodyTakesIsATimeoutOfItsSender) {
  const Job job(2);
  on_threads(2, [&](int rank) {
    const auto transport = job.connect(rank);
    if (rank == 0) {
      const std::string mine = text(1 << 20, 0);
      const auto request = transport->send(1, tag(1), {}, bytes_of(mine));
      EXPECT_THROW(transport->wait(*request, job.watch(0, Milliseconds(300)), "send"), TimeoutError);
      return;
    }
    while (!job.memberships[1]->failed()) std::this_thread::sleep_for(Milliseconds(5));
  });
}

TEST(GlooTransport, ARankThatLeavesHasSentWhatItSentAndNoMore) {
  const Job job(2);
  on_threads(2, [&](int rank) {
    auto transport = job.connect(rank);
    if (rank == 1) {
      for (int i = 0; i < 100; ++i) transport->send(0, tag(1), {}, bytes_of(std::to_string(i)));
      job.memberships[1]->leave();
      return;
    }
    std::this_thread::sleep_for(Milliseconds(50));
    for (int i = 0; i < 100; ++i) {
      Letter letter;
      transport->wait(*transport->receive(1, tag(1), letter.accept()), job.watch(0), "recv");
      EXPECT_EQ(letter.payload, std::to_string(i));
    }
    Letter letter;
    const auto request = transport->receive(1, tag(1), letter.accept());
    const auto start = now();
    EXPECT_THROW(transport->wait(*request, job.watch(0), "recv"), PeerError);
    EXPECT_LT(now() - start, std::chrono::seconds(3));
  });
  EXPECT_EQ(job.memberships[0]->failure().kind, Failure::Kind::kLeft);
}

TEST(GlooTransport, ABrokenConnectionIsAnErrorWhenNobodyKnowsBetter) {
  for (const bool sends : {false, true}) {
    const Job job(2);
    on_threads(2, [&](int rank) {
      auto transport = job.connect(rank);
      if (rank == 1) return;  // without leaving
      const std::string mine = text(1 << 20, 0);
      Letter letter;
      const auto request = sends ? transport->send(1, tag(1), {}, bytes_of(mine))
                                 : transport->receive(1, tag(1), letter.accept());
      const auto start = now();
      EXPECT_THROW(transport->wait(*request, job.watch(0), "recv"), PeerError);
      EXPECT_LT(now() - start, std::chrono::seconds(2));
    });
    EXPECT_EQ(job.memberships[0]->failure().kind, Failure::Kind::kDied);
    EXPECT_EQ(job.memberships[0]->failure().rank, 1);
    EXPECT_EQ(job.memberships[0]->failure().text.find("connection to rank 1 broke"), 0u);
  }
}

TEST(GlooTransport, StrangersWhoConnectAreNoRanks) {
  const Job job(2);
  std::vector<Socket> strangers;
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
