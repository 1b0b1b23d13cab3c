#include "gradus/distributed/transport/ring_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "gradus/distributed/base/error.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/shared_mapping.h"

namespace gradus::dist::internal {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr size_t kLarge = 5'000'001;  // many times what a ring holds

// One rank of a job, with short names for what tests do.
struct Rank {
  int rank;
  std::shared_ptr<Membership> membership;
  std::shared_ptr<Transport> transport;

  Watch watch(Milliseconds timeout = 60s) const { return {membership.get(), Deadline::after(timeout)}; }
  static Tag tag(uint32_t number) { return {1, Channel::kUser, number}; }

  Ref<Request> start_send(int peer, uint32_t number, const std::string& text,
                          const std::string& header = "") const {
    return transport->send(peer, tag(number), std::as_bytes(std::span(header)),
                           std::as_bytes(std::span(text)));
  }
  void send(int peer, uint32_t number, const std::string& text, const std::string& header = "") const {
    transport->wait(*start_send(peer, number, text, header), watch(), "send");
  }
  // `into` grows to what comes.
  Ref<Request> start_receive(int peer, uint32_t number, std::string& into, std::string* header = nullptr,
                             std::vector<int> sources = {}) const {
    const auto accept = [&into, header](int, std::span<const std::byte> given, size_t bytes) -> void* {
      if (header) *header = std::string(reinterpret_cast<const char*>(given.data()), given.size());
      into.assign(bytes, '?');
      return into.data();
    };
    return transport->receive(peer, tag(number), accept, std::move(sources));
  }
  std::string receive(int peer, uint32_t number, Milliseconds timeout = 60s) const {
    std::string text;
    transport->wait(*start_receive(peer, number, text), watch(timeout), "recv");
    return text;
  }
};

// A job whose ranks share a segment.
struct Job {
  explicit Job(int size) : memberships(make_local_memberships(size)) {
    for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
    for (int rank = 0; rank < size; ++rank) transports.push_back({});
  }
  Rank rank(int rank) {
    if (!transports[rank]) transports[rank] = make_ring_transport(segment, memberships[rank], ranks, rank);
    return {rank, memberships[rank], transports[rank]};
  }
  void on_ranks(const std::function<void(const Rank&)>& body) {
    on_threads(int(ranks.size()), [&](int index) { body(rank(index)); });
  }

  std::vector<int> ranks;
  std::vector<std::shared_ptr<Membership>> memberships;
  std::shared_ptr<Segment> segment = std::make_shared<SharedMapping>(ring_bytes(int(memberships.size())));
  std::vector<std::shared_ptr<Transport>> transports;
};

std::string text_of(size_t bytes, int seed) {
  std::string text(bytes, ' ');
  for (size_t i = 0; i < bytes; ++i) text[i] = char('A' + (seed + i % 251) % 50);
  return text;
}

TEST(RingTransport, MessagesOfOneTagKeepTheirOrder) {
  Job job(2);
  job.on_ranks([](const Rank& me) {
    for (int i = 0; i < 2000; ++i) {
      if (me.rank == 0)
        me.send(1, 7, std::to_string(i));
      else
        ASSERT_EQ(me.receive(0, 7), std::to_string(i));
    }
  });
}

TEST(RingTransport, AReceiveTakesTheMessageOfItsTag) {
  Job job(2);
  job.on_ranks([](const Rank& me) {
    if (me.rank == 0) {
      me.send(1, 1, "one");
      me.send(1, 2, text_of(kLarge, 2));
      me.send(1, 3, "three");
      me.send(1, 1, "one again");
    } else {
      EXPECT_EQ(me.receive(0, 3), "three");
      EXPECT_EQ(me.receive(0, 1), "one");
      EXPECT_EQ(me.receive(0, 1), "one again");
      EXPECT_TRUE(me.receive(0, 2) == text_of(kLarge, 2));
    }
  });
}

TEST(RingTransport, GroupsAndChannelsAreTagsToo) {
  Job job(2);
  job.on_ranks([](const Rank& me) {
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
    for (const auto& request : requests) me.transport->wait(*request, me.watch(), "test");
    EXPECT_EQ(texts[0] + texts[1] + texts[2], "012");
  });
}

TEST(RingTransport, HeadersAndEmptyMessagesArrive) {
  Job job(2);
  job.on_ranks([](const Rank& me) {
    for (const size_t header_bytes : {size_t(0), size_t(1), kMaxHeaderBytes})
      for (const size_t bytes : {0, 1, 100}) {
        const std::string header = text_of(header_bytes, 3);
        if (me.rank == 0) {
          me.send(1, 0, text_of(bytes, 4), header);
        } else {
          std::string given = "none", text;
          me.transport->wait(*me.start_receive(0, 0, text, &given), me.watch(), "recv");
          EXPECT_EQ(given, header);
          EXPECT_EQ(text, text_of(bytes, 4));
        }
      }
  });
}

TEST(RingTransport, AnySourceTakesEachMessageOnceAndSaysWhoseItIs) {
  Job job(4);
  job.on_ranks([](const Rank& me) {
    constexpr int kEach = 100;
    if (me.rank != 0) {
      for (int i = 0; i < kEach; ++i) me.send(0, 9, concat(me.rank, ':', i));
      return;
    }
    std::vector<int> next(4, 0);
    for (int i = 0; i < 3 * kEach; ++i) {
      std::string text;
      const auto request = me.start_receive(kAnySource, 9, text, nullptr, {1, 2, 3});
      me.transport->wait(*request, me.watch(), "recv");
      EXPECT_EQ(text, concat(request->source(), ':', next[request->source()]++));
    }
  });
}

TEST(RingTransport, LongMessagesPassEachOther) {
  Job job(2);
  job.on_ranks([](const Rank& me) {
    const int other = 1 - me.rank;
    const std::string mine = text_of(kLarge, me.rank);
    std::string theirs;
    const auto send = me.start_send(other, 0, mine);
    const auto receive = me.start_receive(other, 0, theirs);
    me.transport->wait(*send, me.watch(), "send");
    me.transport->wait(*receive, me.watch(), "recv");
    EXPECT_TRUE(theirs == text_of(kLarge, other));
  });
}

TEST(RingTransport, ARankMaySendToItself) {
  Job job(1);
  const Rank me = job.rank(0);
  const std::string mine = text_of(kLarge, 1);
  std::string again;
  const auto send = me.start_send(0, 0, mine);
  const auto receive = me.start_receive(0, 0, again);
  me.transport->wait(*receive, me.watch(), "recv");
  me.transport->wait(*send, me.watch(), "send");
  EXPECT_TRUE(again == mine);
}

TEST(RingTransport, ASenderIsHeldBackUntilItsMessageIsAskedFor) {
  Job job(2);
  const Rank sender = job.rank(0), receiver = job.rank(1);
  const std::string text = text_of(kLarge, 1);
  const auto send = sender.start_send(1, 1, text);
  std::string into, other;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(send->done());
    EXPECT_EQ(receiver.transport->probe(Rank::tag(2), {}), kAnySource);
  }
  // A receive of what may come behind it moves it out of the way.
  const auto behind = receiver.start_receive(0, 2, other);
  while (!send->done()) EXPECT_FALSE(behind->done());
  const auto receive = receiver.start_receive(0, 1, into);
  EXPECT_TRUE(receive->done());
  EXPECT_TRUE(into == text);
  sender.send(1, 2, "behind");
  EXPECT_TRUE(behind->done());
  EXPECT_EQ(other, "behind");
}

TEST(RingTransport, AMessageOnItsWayToTheHeapCanBeTaken) {
  Job job(2);
  const Rank sender = job.rank(0), receiver = job.rank(1);
  const std::string text = text_of(kLarge, 1);
  std::string into, other;
  const auto behind = receiver.start_receive(0, 2, other);
  const auto send = sender.start_send(1, 1, text);
  EXPECT_FALSE(behind->done());
  EXPECT_FALSE(send->done());
  const auto receive = receiver.start_receive(0, 1, into);
  EXPECT_FALSE(receive->done());
  while (!send->done()) receive->done();
  EXPECT_TRUE(receive->done());
  EXPECT_TRUE(into == text);
  sender.send(1, 2, "");
  EXPECT_TRUE(behind->done());
}

TEST(RingTransport, ProbeSaysWhoSentAMessageThatNobodyAskedFor) {
  Job job(3);
  const Rank me = job.rank(0), one = job.rank(1), two = job.rank(2);
  EXPECT_EQ(me.transport->probe(Rank::tag(5), {1, 2}), kAnySource);
  one.send(0, 4, "in the way");
  one.send(0, 5, "hello");
  EXPECT_EQ(me.transport->probe(Rank::tag(5), {2}), kAnySource);
  EXPECT_EQ(me.transport->probe(Rank::tag(5), {1, 2}), 1);
  EXPECT_EQ(me.receive(1, 5), "hello");
  EXPECT_EQ(me.transport->probe(Rank::tag(5), {1, 2}), kAnySource);
  EXPECT_EQ(me.receive(1, 4), "in the way");
}

TEST(RingTransport, AMessageThatIsNotAcceptedIsAnErrorAndTheNextOneArrives) {
  Job job(2);
  job.on_ranks([](const Rank& me) {
    if (me.rank == 0) {
      me.send(1, 0, text_of(kLarge, 1));
      me.send(1, 0, "next");
      return;
    }
    const auto refuse = [](int, std::span<const std::byte>, size_t bytes) -> void* {
      throw ShapeError("recv", bytes, " bytes do not fit");
    };
    const auto request = me.transport->receive(0, Rank::tag(0), refuse);
    try {
      me.transport->wait(*request, me.watch(), "recv");
      ADD_FAILURE() << "accepted";
    } catch (const ShapeError& error) {
      EXPECT_STREQ(error.what(), "[recv] 5000001 bytes do not fit");
    }
    EXPECT_THROW(request->done(), ShapeError);
    EXPECT_EQ(me.receive(0, 0), "next");
  });
}

TEST(RingTransport, ManyMessagesOfAllSizesBetweenAllRanks) {
  Job job(4);
  job.on_ranks([](const Rank& me) {
    const auto message = [](int from, int to, int i) {
      std::minstd_rand random((from * 4 + to) * 1000 + i + 1);
      random.discard(10);
      return text_of(size_t(1) << random() % 18, random() % 50);
    };
    constexpr int kEach = 60;
    std::vector<std::string> sent, received(4 * kEach);
    for (int peer = 0; peer < 4; ++peer)
      for (int i = 0; i < kEach; ++i) sent.push_back(message(me.rank, peer, i));
    std::vector<Ref<Request>> requests;
    for (int i = 0; i < kEach; ++i)
      for (int peer = 0; peer < 4; ++peer) {
        // Receives of the three tags are posted in another order than the messages are sent in.
        const int other = i / 6 * 6 + (5 - i % 6);
        requests.push_back(me.start_send(peer, other % 3, sent[peer * kEach + other]));
        requests.push_back(me.start_receive(peer, i % 3, received[peer * kEach + i]));
      }
    // Several threads of one rank wait at once.
    std::vector<std::thread> waiters;
    for (size_t first = 0; first < 3; ++first)
      waiters.emplace_back([&, first] {
        for (size_t i = first; i < requests.size(); i += 3)
          me.transport->wait(*requests[i], me.watch(), "test");
      });
    for (std::thread& waiter : waiters) waiter.join();
    // Of each tag they arrive as they were sent: 5, 2, 11, 8, ... of tag 2, for instance.
    for (int peer = 0; peer < 4; ++peer)
      for (int i = 0; i < kEach; ++i) {
        const int nth = i / 3, sent_as = nth / 2 * 6 + (nth % 2 == 0 ? 3 : 0) + i % 3;
        EXPECT_TRUE(received[peer * kEach + i] == message(peer, me.rank, sent_as)) << i;
      }
  });
}

TEST(RingTransport, MessagesMoveInTheBackground) {
  Job job(2);
  std::string into;
  const Rank receiver = job.rank(1);
  receiver.transport->progress_in_background();
  const auto receive = receiver.start_receive(0, 0, into);
  // Nobody waits on rank 1, which answers all the same.
  const std::string reply = text_of(kLarge, 2);
  const auto answer = receiver.start_send(0, 1, reply);
  job.rank(0).send(1, 0, text_of(kLarge, 1));
  EXPECT_TRUE(job.rank(0).receive(1, 1) == reply);
  while (!receive->done()) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(into == text_of(kLarge, 1));
}

TEST(RingTransport, WhatARankSentBeforeItLeftArrives) {
  Job job(2);
  const Rank sender = job.rank(0), receiver = job.rank(1);
  sender.send(1, 0, "last words");
  sender.membership->leave();
  EXPECT_EQ(receiver.receive(0, 0), "last words");
  try {
    receiver.receive(0, 0);
    ADD_FAILURE() << "received from a rank that has left";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 0);
    EXPECT_THAT(error.what(), HasSubstr("rank 0 has left"));
  }
}

TEST(RingTransport, ASendToARankThatHasLeftIsAnError) {
  Job job(2);
  const Rank sender = job.rank(0);
  job.memberships[1]->leave();
  EXPECT_THROW(sender.send(1, 0, text_of(kLarge, 0)), PeerError);
}

TEST(RingTransport, AMessageThatDoesNotComeIsATimeoutThatNamesTheSender) {
  Job job(3);
  const TimePoint start = now();
  try {
    job.rank(0).receive(2, 0, 100ms);
    ADD_FAILURE() << "received nothing";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.rank(), 2);
    EXPECT_THAT(error.what(), HasSubstr("rank 2"));
  }
  EXPECT_LT(now() - start, 2s);
}

TEST(RingTransport, AFailureOfTheJobEndsAllWaits) {
  Job job(2);
  const TimePoint start = now();
  std::thread reporter([&] {
    std::this_thread::sleep_for(50ms);
    job.memberships[1]->report({Failure::Kind::kFailed, 1, "rank 1 threw"});
  });
  const Rank me = job.rank(0);
  std::string into;
  {
    const std::string text = text_of(kLarge, 0);
    const auto send = me.start_send(1, 0, text), receive = me.start_receive(1, 0, into);
    EXPECT_THROW(me.transport->wait(*receive, me.watch(), "recv"), PeerError);
    EXPECT_THROW(send->done(), PeerError);
  }
  reporter.join();
  EXPECT_LT(now() - start, 1s);
}

TEST(RingTransport, MemoryOfARequestThatWasGivenUpIsNotTouched) {
  Job job(2);
  const Rank sender = job.rank(0), receiver = job.rank(1);
  receiver.transport->progress_in_background();
  for (int i = 0; i < 20; ++i) {
    // The receive goes away before, while, or after its message comes.
    auto into = std::make_unique<std::string>();
    auto receive = receiver.start_receive(0, 1, *into);
    const std::string text = text_of(kLarge, i);
    const auto send = sender.start_send(1, 1, text);
    std::thread other([&] { sender.transport->wait(*send, sender.watch(), "send"); });
    std::this_thread::sleep_for(std::chrono::microseconds(i * 50));
    receive = {};
    into.reset();
    if (!send->done()) receiver.transport->probe(Rank::tag(2), {0});  // moves it away, if nobody did
    while (!send->done()) receiver.transport->probe(Rank::tag(2), {0});
    other.join();
  }
}

// Every value a rank may find there is either refused or harmless.
TEST(RingTransport, NonsenseInTheMemoryIsAnError) {
  std::minstd_rand random(1);
  for (int i = 0; i < 200; ++i) {
    Job job(2);
    const Rank me = job.rank(0);
    std::byte* memory = job.segment->data();
    const size_t heads = ring_bytes(2) - 4 * (size_t(256) << 10);
    const size_t ring_data = heads + 2 * (size_t(256) << 10);
    auto* written = reinterpret_cast<std::atomic<uint64_t>*>(memory + 2 * 64 + 2 * 128);  // from 1 to 0
    if (i == 0) {
      std::memset(memory + 2 * 64, 0xff, heads - 2 * 64);
    } else if (i < 4) {
      // A head (tag, payload's bytes, time, header's bytes, zero) of which one value is out of bounds.
      const uint64_t head[] = {0, i == 1 ? uint64_t(1) << 48 : 0, 0,
                               i == 2   ? kMaxHeaderBytes + 1
                               : i == 3 ? uint64_t(1) << 32
                                        : 0};
      std::memcpy(memory + ring_data, head, sizeof head);
      written->store(1000);
    } else {
      for (size_t at = 0; at < 4096; ++at) memory[ring_data + at] = std::byte(random() % 256);
      written->store(4096);
    }
    try {
      me.receive(1, 0, 5s);
      ADD_FAILURE() << "took nonsense";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("nonsense"));
    }
  }
}

TEST(RingTransportOfProcesses, MessagesArrive) {
  Job job(2);
  const auto play = [&job](int rank) {
    const Rank me = job.rank(rank);
    for (int i = 0; i < 200; ++i) {
      const std::string text = text_of(i * 1000, i);
      if (rank == i % 2)
        me.send(1 - rank, 0, text);
      else
        ASSERT_TRUE(me.receive(1 - rank, 0) == text);
    }
  };
  ForkedProcess other([&] { play(1); });
  play(0);
  EXPECT_EQ(other.wait(), 0);
}

TEST(RingTransportOfProcesses, ARankThatIsKilledEndsTheWaitsOfOthers) {
  for (int i = 0; i < 5; ++i) {
    Job job(2);
    ForkedProcess victim([&] {
      const Rank me = job.rank(1);
      const std::string text = text_of(kLarge, 1);
      for (;;) me.send(0, 0, text);
    });
    TimePoint killed{};
    std::thread watcher([&] {
      std::this_thread::sleep_for(20ms + i * 1ms);
      killed = now();
      victim.kill();
      job.memberships[0]->report({Failure::Kind::kDied, 1, "rank 1 was killed by signal 9 (SIGKILL)"});
    });
    try {
      for (;;) job.rank(0).receive(1, 0);
    } catch (const PeerError& error) {
      EXPECT_STREQ(error.what(), "[recv] rank 1 was killed by signal 9 (SIGKILL)");
    }
    watcher.join();
    EXPECT_LT(now() - killed, 1s);
  }
}

}  // namespace
}  // namespace gradus::dist::internal
