// Messages through rings in shared memory: a message without a receive stays in its ring, or moves to the
// heap if one behind it is wanted; order per tag, background progress, corrupt rings. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "gradus/distributed/base/error.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/forked_process.h"
#include "gradus/tests/distributed/transport/transport_rank.h"

namespace gradus::dist::internal {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr size_t kLarge = 5'000'001;  // many times what a ring holds

using Rank = TransportRank;

// A job whose ranks share a segment.
struct Job {
  explicit Job(int size) : memberships(make_local_memberships(size)) {
    for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
    for (int rank = 0; rank < size; ++rank) transports.push_back({});
  }
  Rank rank(int rank) {
    if (!transports[rank]) transports[rank] = make_stream_transport(segment, memberships[rank], ranks, rank);
    return {rank, memberships[rank], transports[rank]};
  }
  void on_ranks(const std::function<void(const Rank&)>& body) {
    on_threads(int(ranks.size()), [&](int index) { body(rank(index)); });
  }

  std::vector<int> ranks;
  std::vector<std::shared_ptr<Membership>> memberships;
  std::shared_ptr<Segment> segment = std::make_shared<Segment>(ring_bytes(int(memberships.size())));
  std::vector<std::shared_ptr<Transport>> transports;
};

TEST(RingTransport, ASenderIsHeldBackUntilItsMessageIsAskedFor) {
  Job job(2);
  const Rank sender = job.rank(0), receiver = job.rank(1);
  const std::string text = text_of(kLarge, 1);
  const auto send = sender.start_send(1, 1, text);
  std::string into, other;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(send->done());
    receiver.start_receive(1, 2, other);  // moves messages, and does not take this one
  }
  // A posted receive from the same sender moves the message to the heap.
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
    // Messages of one tag arrive in the order of sending: 5, 2, 11, 8, ... for tag 2.
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
  // Rank 1 has no thread that waits, but sends and receives.
  const std::string reply = text_of(kLarge, 2);
  const auto answer = receiver.start_send(0, 1, reply);
  job.rank(0).send(1, 0, text_of(kLarge, 1));
  EXPECT_TRUE(job.rank(0).receive(1, 1) == reply);
  while (!receive->done()) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(into == text_of(kLarge, 1));
}

TEST(RingTransport, ASendToARankThatHasLeftIsAnError) {
  Job job(2);
  const Rank sender = job.rank(0);
  job.memberships[1]->leave();
  EXPECT_THROW(sender.send(1, 0, text_of(kLarge, 0)), PeerError);
}

TEST(RingTransport, MemoryOfARequestThatWasGivenUpIsNotTouched) {
  Job job(2);
  const Rank sender = job.rank(0), receiver = job.rank(1);
  receiver.transport->progress_in_background();
  for (int i = 0; i < 20; ++i) {
    // The receive is destroyed before, while, or after its message arrives.
    auto into = std::make_unique<std::string>();
    auto receive = receiver.start_receive(0, 1, *into);
    const std::string text = text_of(kLarge, i);
    const auto send = sender.start_send(1, 1, text);
    std::thread other([&] { sender.transport->wait(*send, sender.watch(), "send"); });
    std::this_thread::sleep_for(std::chrono::microseconds(i * 50));
    receive = {};
    into.reset();
    std::string behind;
    const auto next = receiver.start_receive(0, 2, behind);  // moves the message to the heap if necessary
    while (!send->done()) next->done();
    other.join();
  }
}

// Random values in a ring are refused or harmless.
TEST(RingTransport, CorruptMemoryIsAnError) {
  std::minstd_rand random(1);
  for (int i = 0; i < 60; ++i) {
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
      ADD_FAILURE() << "no error";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 corrupted the shared-memory message ring"));
    }
  }
}

}  // namespace
}  // namespace gradus::dist::internal
