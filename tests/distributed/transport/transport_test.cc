// The contract of Transport, for rings in shared memory and for sockets: order, tags, any source, refused
// messages, timeouts, failures. Ranks are threads.
#include "gradus/distributed/transport/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/store/memory_store.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/transport_rank.h"

namespace gradus::dist::internal {
namespace {

using namespace std::chrono_literals;
using Rank = TransportRank;

constexpr size_t kLarge = 5'000'001;  // many times what a ring holds

class TransportTest : public testing::TestWithParam<const char*> {
 protected:
  // Runs body on `size` ranks, which leave the job afterward.
  void on_ranks(int size, const std::function<void(const Rank&)>& body) {
    memberships_ = make_local_memberships(size);
    const auto store = make_memory_store();
    const auto rings = make_ring_transports(memberships_);
    on_threads(size, [&](int rank) {
      Rank me{rank, memberships_[rank], rings[rank]};
      if (GetParam() == std::string("sockets"))
        me.transport = make_socket_transport(rank, size, store, memberships_[rank], me.watch(20s));
      body(me);
      me.membership->leave();
    });
  }

  std::vector<std::shared_ptr<Membership>> memberships_;
};
INSTANTIATE_TEST_SUITE_P(, TransportTest, testing::Values("ring", "sockets"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(TransportTest, MessagesOfAllSizesArriveInOrder) {
  const std::vector<size_t> sizes = {0, 1, 100, 16'384, 16'385, 100'000, 3'000'001, 5, 0, 70'000};
  const std::vector<size_t> header_sizes = {1, 0, kMaxHeaderBytes, 7};
  on_ranks(2, [&](const Rank& me) {
    const int peer = 1 - me.rank;
    const auto text = [&](int rank, size_t i) { return text_of(sizes[i], rank + int(i)); };
    const auto header = [&](size_t i) { return text_of(header_sizes[i % header_sizes.size()], int(i)); };
    std::vector<std::string> out;
    std::vector<Ref<Request>> requests;
    for (size_t i = 0; i < sizes.size(); ++i) out.push_back(text(me.rank, i));
    for (size_t i = 0; i < sizes.size(); ++i) requests.push_back(me.start_send(peer, 1, out[i], header(i)));
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::string received, received_header = "none";
      const auto request = me.start_receive(peer, 1, received, &received_header);
      me.wait(request);
      EXPECT_EQ(request->source(), peer);
      EXPECT_EQ(received_header, header(i));
      EXPECT_TRUE(received == text(peer, i)) << sizes[i];
    }
    for (const auto& request : requests) me.wait(request);
  });
}

TEST_P(TransportTest, AThousandSmallMessagesArriveInOrderWhateverIsAwaitedFirst) {
  on_ranks(2, [](const Rank& me) {
    constexpr int kCount = 1000;
    if (me.rank == 0) {
      for (int i = 0; i < kCount; ++i) me.send(1, 1, std::to_string(i));
      return;
    }
    std::vector<std::string> texts(kCount);
    std::vector<Ref<Request>> requests;
    for (int i = 0; i < kCount; ++i) requests.push_back(me.start_receive(0, 1, texts[i]));
    for (int i = kCount - 1; i >= 0; --i) me.wait(requests[i]);
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(texts[i], std::to_string(i));
  });
}

TEST_P(TransportTest, AReceiveTakesTheMessageOfItsTag) {
  for (const size_t bytes : {size_t(10), size_t(200'000), kLarge})
    on_ranks(2, [&](const Rank& me) {
      if (me.rank == 0) {
        const std::string first = text_of(bytes, 1), second = text_of(bytes, 2);
        const auto one = me.start_send(1, 1, first), two = me.start_send(1, 2, second),
                   again = me.start_send(1, 1, second);
        for (const auto& send : {one, two, again}) me.wait(send);
        return;
      }
      EXPECT_TRUE(me.receive(0, 2) == text_of(bytes, 2));
      EXPECT_TRUE(me.receive(0, 1) == text_of(bytes, 1));
      EXPECT_TRUE(me.receive(0, 1) == text_of(bytes, 2));
    });
}

TEST_P(TransportTest, GroupsAndChannelsAreTagsToo) {
  on_ranks(2, [](const Rank& me) {
    const Tag tags[] = {{1, Channel::kUser, 5}, {2, Channel::kUser, 5}, {1, Channel::kRemote, 5}};
    std::string texts[] = {"0", "1", "2"};
    std::vector<Ref<Request>> requests;
    for (int i = 0; i < 3; ++i) {
      if (me.rank == 0)
        requests.push_back(me.transport->send(1, tags[i], {}, std::as_bytes(std::span(texts[i]))));
      char* into = texts[2 - i].data();
      const auto accept = [into](int, std::span<const std::byte>, size_t) -> void* { return into; };
      if (me.rank == 1) requests.push_back(me.transport->receive(0, tags[2 - i], accept));
    }
    for (const auto& request : requests) me.wait(request);
    EXPECT_EQ(texts[0] + texts[1] + texts[2], "012");
  });
}

TEST_P(TransportTest, AReceiveFromAnyRankTakesEachMessageOnceAndHasItsSource) {
  for (const size_t bytes : {10, 100'000})
    on_ranks(4, [&](const Rank& me) {
      constexpr int kEach = 20;
      if (me.rank != 0) {
        for (int i = 0; i < kEach; ++i) me.send(0, 9, text_of(bytes, me.rank * kEach + i));
        return;
      }
      std::vector<int> next(4, 0);
      for (int i = 0; i < 3 * kEach; ++i) {
        std::string text;
        const auto request = me.start_receive(kAnySource, 9, text, nullptr, {1, 2, 3});
        me.wait(request);
        const int source = request->source();
        EXPECT_TRUE(text == text_of(bytes, source * kEach + next[source]++)) << source;
      }
      EXPECT_THAT(next, testing::ElementsAre(0, kEach, kEach, kEach));
    });
}

TEST_P(TransportTest, ARankMaySendToItself) {
  on_ranks(1, [](const Rank& me) {
    const std::string mine = text_of(kLarge, 1);
    std::string received, header;
    const auto send = me.start_send(0, 1, mine, "head");
    me.wait(me.start_receive(kAnySource, 1, received, &header));
    me.wait(send);
    EXPECT_EQ(header, "head");
    EXPECT_TRUE(received == mine);
  });
}

TEST_P(TransportTest, LargeMessagesMoveBothWaysBetweenAllAtOnce) {
  on_ranks(3, [](const Rank& me) {
    const std::string mine = text_of(kLarge, me.rank);
    std::vector<std::string> received(3);
    std::vector<Ref<Request>> requests;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == me.rank) continue;
      requests.push_back(me.start_send(peer, 1, mine));
      requests.push_back(me.start_receive(peer, 1, received[peer]));
    }
    for (const auto& request : requests) me.wait(request);
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_TRUE(peer == me.rank || received[peer] == text_of(kLarge, peer));
  });
}

TEST_P(TransportTest, DoneBecomesTrueWithoutAWait) {
  on_ranks(2, [](const Rank& me) {
    const std::string mine = text_of(500'000, me.rank);
    std::string received;
    const auto send = me.start_send(1 - me.rank, 1, mine);
    const auto receive = me.start_receive(1 - me.rank, 1, received);
    while (!send->done() || !receive->done()) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(received == text_of(500'000, 1 - me.rank));
  });
}

TEST_P(TransportTest, AMessageThatIsNotAcceptedIsTheReceivesErrorAlone) {
  for (const size_t bytes : {size_t(10), kLarge})
    on_ranks(2, [&](const Rank& me) {
      if (me.rank == 0) {
        me.send(1, 0, text_of(bytes, 1));
        me.send(1, 0, "next");
        return;
      }
      const auto refuse = [](int, std::span<const std::byte>, size_t bytes) -> void* {
        throw ShapeError("recv", bytes, " bytes do not fit");
      };
      const auto request = me.transport->receive(0, Rank::tag(0), refuse);
      EXPECT_THAT([&] { me.wait(request); },
                  testing::ThrowsMessage<ShapeError>(concat("[recv] ", bytes, " bytes do not fit")));
      EXPECT_THROW(request->done(), ShapeError);
      EXPECT_EQ(me.receive(0, 0), "next");
    });
}

TEST_P(TransportTest, WhatARankSentBeforeItLeftArrivesAndNoMore) {
  on_ranks(2, [](const Rank& me) {
    if (me.rank == 1) {
      for (int i = 0; i < 100; ++i) me.send(0, 1, std::to_string(i));
      return;
    }
    std::this_thread::sleep_for(50ms);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(me.receive(1, 1), std::to_string(i));
    const TimePoint start = now();
    EXPECT_THAT([&] { me.receive(1, 1); },
                testing::ThrowsMessage<PeerError>(testing::HasSubstr("rank 1 has left")));
    EXPECT_LT(now() - start, 3s);
  });
  EXPECT_EQ(memberships_[0]->failure().kind, Failure::Kind::kLeft);
  EXPECT_EQ(memberships_[0]->failure().rank, 1);
}

TEST_P(TransportTest, AMessageThatDoesNotComeIsATimeoutThatNamesItsSender) {
  on_ranks(3, [](const Rank& me) {
    if (me.rank != 0) {
      while (!me.membership->failed()) std::this_thread::sleep_for(5ms);
      return;
    }
    const TimePoint start = now();
    EXPECT_THAT([&] { me.receive(2, 0, 300ms); },
                testing::ThrowsMessage<TimeoutError>(testing::HasSubstr("rank 2")));
    EXPECT_LT(now() - start, 2s);
  });
  EXPECT_EQ(memberships_[1]->failure().rank, 2);
}

TEST_P(TransportTest, AFailureOfTheJobEndsAllWaits) {
  on_ranks(2, [](const Rank& me) {
    if (me.rank == 1) {
      std::this_thread::sleep_for(50ms);
      me.membership->report({Failure::Kind::kFailed, 1, "rank 1 threw"});
      return;
    }
    const TimePoint start = now();
    std::string received;
    const std::string text(64 << 20, 'x');  // more than the kernel buffers of sockets take
    const auto send = me.start_send(1, 1, text), receive = me.start_receive(1, 0, received);
    EXPECT_THROW(me.wait(receive), PeerError);
    EXPECT_THROW(send->done(), PeerError);
    EXPECT_LT(now() - start, 1s);
  });
}

}  // namespace
}  // namespace gradus::dist::internal
